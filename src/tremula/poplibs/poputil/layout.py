"""How tensors lie in memory: their elements in memory order, and clones that keep that order."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from tremula.base.types import QUARTER, Type
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.blocks import BlockPieces
from tremula.poplar.tensors.layout import variables_met
from tremula.poplar.tensors.regions import nests
from tremula.poplar.tensors.runs import Pieces, compress, merge_dims, single_run
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplibs.poputil.memory_order import blocks_of, known_repeats, order_of
from tremula.poplibs.poputil.replay import replayed


def simplified(tensor: Tensor, others: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """A tensor with its dimensions or elements in memory order; others of its shape follow suit.

    Where permuting the dimensions of a strided view is enough, the others keep their repeats
    visible. Otherwise all are flattened.
    """
    strided = factored(tensor)
    if strided is not None:
        dims = memory_order(strided)
        like = [_refined(t, strided.shape) for t in others]
        return strided.dim_shuffle(dims), [t.dim_shuffle(dims) for t in like]
    dims = memory_order(tensor)
    if dims != sorted(dims):  # contiguous memory becomes one piece
        return simplified(tensor.dim_shuffle(dims), [t.dim_shuffle(dims) for t in others])
    if blocks_of(tensor) is None and tensor.is_contiguous:
        return tensor, others
    order = order_of(tensor)
    return order.applied(tensor), [order.applied(t) for t in others]


def factored(tensor: Tensor) -> Tensor | None:
    """All elements, in order, as a strided view; dimensions are split as needed.

    Grouped layouts are examples: shape [8, 5] stored as [2, 5, 4] is [2, 4, 5] with strides
    [20, 1, 4]. None if no strides describe it.
    """
    if tensor.pieces is None:
        return tensor
    dims = memory_order(tensor)
    if dims != sorted(dims):
        return _factored_in_order(tensor, dims)
    view = _even_runs(tensor) if blocks_of(tensor) is None else _even_blocks(tensor)
    refined = None if view is None else _common_shape(tensor.shape, view.shape)
    return None if view is None or refined is None else view.reshape(refined)


def _even_runs(tensor: Tensor) -> Tensor | None:
    """All runs of a tensor as a strided view, if they are equal and follow in nested even steps."""
    runs = tensor.runs()
    if not len(runs.start) or (runs.count != runs.count[0]).any():
        return None
    stride = runs.stride if runs.count[0] > 1 else np.ones(1, np.int64)
    if (stride != stride[0]).any():
        return None
    steps = _steps_of(runs.start)
    if steps is None:
        return None
    sizes, strides = [n for n, _ in steps], [s for _, s in steps]
    shape, offset = (*sizes, int(runs.count[0])), int(runs.start[0])
    return Tensor(tensor.variables, tensor.type, offset, shape, (*strides, int(stride[0])))


def _even_blocks(tensor: Tensor) -> Tensor | None:
    """A matrix of equal blocks as a strided view."""
    pieces = tensor.pieces
    assert isinstance(pieces, BlockPieces), "asked of blocks only"
    even = pieces.cuts.even_sizes()
    if even is None:
        return None
    n_below, height, n_beside, width = even
    strides = (height * n_beside * width, width, height * width, 1)
    sizes, steps = merge_dims((n_below, height, n_beside, width), strides)
    return Tensor(tensor.variables, tensor.type, pieces.offset, tuple(sizes), tuple(steps))


def _factored_in_order(tensor: Tensor, dims: list[int]) -> Tensor | None:
    """A strided view, found from dimensions in memory order, which have far fewer runs."""
    ordered = tensor.dim_shuffle(dims)
    strided = factored(ordered)
    if strided is None:
        return None
    parts: list[list[int]] = []  # of the strided view, by dimension of the ordered one
    part = 0
    for size in ordered.shape:
        first, n = part, 1
        while n < size:
            n *= strided.shape[part]
            part += 1
        parts.append(list(range(first, part)))
    return strided.dim_shuffle([i for d in range(tensor.rank) for i in parts[dims.index(d)]])


def repeats_elements(tensor: Tensor) -> bool:
    """Whether some element appears twice; nesting strides rule it out without looking."""
    pieces = tensor.pieces
    is_known = pieces is not None and pieces.alike is not None and not pieces.repeats_elements()
    if is_known and nests(tensor.shape, tensor.strides):
        return False
    # No two places of a blocked matrix are one element, so its view is as good as a strided one.
    strided = tensor if isinstance(tensor.pieces, BlockPieces) else factored(tensor)
    if strided is None:
        return known_repeats(tensor.dim_shuffle(memory_order(tensor)))
    return not nests(strided.shape, strided.strides) and tensor.contains_aliases


def is_writeable(tensor: Tensor) -> bool:
    """No element twice and no constant: vertices may write the tensor in parallel."""
    is_constant = tensor.variables.is_constant
    may_be = any(is_constant[v] for v in variables_met(tensor))
    return not (may_be and tensor.contains_constant) and not repeats_elements(tensor)


def _steps_of(start: np.ndarray) -> list[tuple[int, int]] | None:
    """(count, step) from the outside in, if the starts form nested even steps."""
    steps: list[tuple[int, int]] = []
    while len(start) > 1:
        step = int(start[1] - start[0])
        breaks = np.flatnonzero(np.diff(start) != step)
        n = int(breaks[0]) + 1 if len(breaks) else len(start)
        if len(start) % n:
            return None
        blocks = start.reshape(-1, n)
        if (blocks != blocks[:, :1] + step * np.arange(n)).any():
            return None
        steps.insert(0, (n, step))
        start = blocks[:, 0]
    return steps


def _common_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """The coarsest shape both can be reshaped to by splitting dimensions only."""
    ends = {int(n) for shape in (a, b) for n in np.cumprod([1, *reversed(shape)])}
    bounds = sorted(ends)
    if any(large % small for small, large in pairwise(bounds)):
        return None
    return tuple(reversed([large // small for small, large in pairwise(bounds)]))


def _refined(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor in a shape that splits its dimensions; strided where possible."""
    strided = factored(tensor)
    refined = tensor if strided is None else strided
    return refined.reshape(shape)


def in_memory_order(tensor: Tensor, others: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """A tensor flattened in the order of its memory, and others of its shape in the same order."""
    first, rest = simplified(tensor, others)
    return first.flatten(), [t.flatten() for t in rest]


def memory_order(tensor: Tensor) -> list[int]:
    """Dimensions of a strided view from the widest stride to the narrowest; stable."""
    strides = [abs(s) if n > 1 else None for n, s in zip(tensor.shape, tensor.strides, strict=True)]
    moving = sorted(
        (d for d, s in enumerate(strides) if s is not None), key=lambda d: -(strides[d] or 0)
    )
    return [*(d for d, s in enumerate(strides) if s is None), *moving]


def is_contiguous_along(tensor: Tensor, dim: int) -> bool:
    """Whether elements follow each other in memory along a dimension, as the first two show.

    Strides say nothing about tensors in pieces: blocks of channels may lie innermost, whatever the
    order of dimensions.
    """
    if tensor.shape[dim] < 2 or 0 in tensor.shape:
        return False
    if tensor.pieces is None:
        return tensor.strides[dim] == 1
    two = single_run(tensor.offset, 2, tensor.strides[dim])
    first, second = tensor.pieces.lookup(two).addresses().tolist()
    return second - first == 1


def clone_in_order(
    graph: Graph,
    tensor: Tensor,
    name: str = "",
    *,
    type: Type | None = None,
    moved: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Tensor:
    """A new variable with a tensor's shape, tile map, and order of elements in memory.

    `moved` gives other tiles for those of the tensor, both as the top level numbers them.
    """
    if moved is None:
        return _clone_on_its_tiles(graph, tensor, name, type or tensor.type)
    return _clone(graph, tensor, name, type or tensor.type, moved)


@replayed
def _clone_on_its_tiles(graph: Graph, tensor: Tensor, name: str, type: Type) -> Tensor:
    return _clone(graph, tensor, name, type, lambda tile: tile)


def _clone(
    graph: Graph,
    tensor: Tensor,
    name: str,
    type: Type,
    moved: Callable[[np.ndarray], np.ndarray],
) -> Tensor:
    metadata = tensor.metadata if type is QUARTER else None
    turned = memory_order(tensor)
    is_blocked = blocks_of(tensor.dim_shuffle(turned)) is not None
    strided = None if is_blocked else factored(tensor)
    if strided is None and turned != sorted(turned):
        new = _clone(graph, tensor.dim_shuffle(turned), name, type, moved)
        return new.dim_shuffle(np.argsort(turned).tolist())
    if strided is not None:
        dims = memory_order(strided)
        source = strided.dim_shuffle(dims)
        new = graph.add_variable(type, source.shape, name or "clone", metadata=metadata)
        result = new.dim_shuffle(np.argsort(dims).tolist()).reshape(tensor.shape)
    else:
        order = None if not is_blocked and tensor.is_contiguous else order_of(tensor)
        source = tensor.flatten() if order is None else order.applied(tensor)
        new = graph.add_variable(type, [tensor.n_elems], name or "clone", metadata=metadata)
        result = new.reshape(tensor.shape) if order is None else order.undone(new, tensor.shape)
    old = graph.top.get_tile_mapping(source, require_complete=False)
    mapping = TileMapping(old.begin, old.end, moved(old.tile), old.n_tiles)
    graph.top.set_tile_mapping(new, mapping)
    return result


def distinct_part(tensor: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Each element of a tensor once, and a function that repeats a clone of them alike."""
    if not tensor.contains_aliases:
        return tensor, lambda clone: clone
    addresses, place = np.unique(tensor.addresses().ravel(), return_inverse=True)
    distinct = Tensor(
        tensor.variables, tensor.type, 0, (len(addresses),), (1,), Pieces(compress(addresses))
    )

    def restored(clone: Tensor) -> Tensor:
        runs, _ = Pieces(clone.flatten().runs()).lookup_intervals(place, place + 1)
        flat = Tensor(clone.variables, clone.type, 0, (len(place),), (1,), Pieces(runs))
        return flat.reshape(tensor.shape)

    return distinct, restored

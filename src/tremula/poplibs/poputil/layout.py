"""How tensors lie in memory: their elements in memory order, and clones that keep that order."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from tremula.base.types import QUARTER, Type
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.runs import Pieces, Runs, compress
from tremula.poplar.tensors.tensor import Tensor


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
    if tensor.is_contiguous:
        return tensor, others
    order = _ElementOrder(tensor)
    return order.applied(tensor), [order.applied(t) for t in others]


def factored(tensor: Tensor) -> Tensor | None:
    """The same elements, in the same order, as a strided view; dimensions are split as needed.

    Grouped layouts are such views: shape [8, 5] stored as [2, 5, 4] is [2, 4, 5] with strides
    [20, 1, 4]. None if no strides describe it.
    """
    if tensor.pieces is None:
        return tensor
    dims = memory_order(tensor)
    if dims != sorted(dims):
        return _factored_in_order(tensor, dims)
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
    view = Tensor(tensor.variables, tensor.type, offset, shape, (*strides, int(stride[0])))
    refined = _common_shape(tensor.shape, view.shape)
    return None if refined is None else view.reshape(refined)


def _factored_in_order(tensor: Tensor, dims: list[int]) -> Tensor | None:
    """The same, starting from dimensions in memory order, which have far fewer runs."""
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
    strided = factored(tensor)
    if strided is None:
        return tensor.dim_shuffle(memory_order(tensor)).contains_aliases
    reach = 1
    for stride, size in sorted(zip(map(abs, strided.strides), strided.shape, strict=True)):
        if size > 1:
            if stride < reach:
                return tensor.contains_aliases
            reach = stride * size
    return False


def is_writeable(tensor: Tensor) -> bool:
    """No element twice and no constant: vertices may write the tensor in parallel."""
    starts = tensor.runs().start * tensor.type.n_bytes
    ids = np.unique(tensor.variables.ids_at(starts)).tolist()
    return not any(tensor.variables.is_constant[v] for v in ids) and not repeats_elements(tensor)


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


class _ElementOrder:
    """The permutation that puts a tensor's contiguous parts in the order of their addresses."""

    def __init__(self, tensor: Tensor):
        begin, end = tensor.ordered_intervals()
        self.count = (end - begin) // tensor.type.n_bytes
        self.first = np.cumsum(self.count) - self.count
        self.order = np.argsort(begin, kind="stable")

    def applied(self, tensor: Tensor) -> Tensor:
        """The tensor flat, its elements in this order."""
        begin = self.first[self.order]
        runs, _ = Pieces(tensor.runs()).lookup_intervals(begin, begin + self.count[self.order])
        return Tensor(tensor.variables, tensor.type, 0, (tensor.n_elems,), (1,), Pieces(runs))

    def undone(self, flat: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A contiguous flat tensor in this order, as the view the order was made from."""
        place = np.empty_like(self.first)
        sorted_count = self.count[self.order]
        place[self.order] = np.cumsum(sorted_count) - sorted_count
        runs = Runs(flat.offset + place, self.count, np.ones_like(place))
        whole = Tensor(flat.variables, flat.type, 0, (flat.n_elems,), (1,), Pieces(runs))
        return whole.reshape(shape)


def clone_in_order(
    graph: Graph, tensor: Tensor, name: str = "", *, type: Type | None = None
) -> Tensor:
    """A new variable with a tensor's shape, tile map, and order of elements in memory."""
    type = type or tensor.type
    metadata = tensor.metadata if type is QUARTER else None
    strided = factored(tensor)
    turned = memory_order(tensor)
    if strided is None and turned != sorted(turned):
        new = clone_in_order(graph, tensor.dim_shuffle(turned), name, type=type)
        return new.dim_shuffle(np.argsort(turned).tolist())
    if strided is not None:
        dims = memory_order(strided)
        source = strided.dim_shuffle(dims)
        new = graph.add_variable(type, source.shape, name or "clone", metadata=metadata)
        result = new.dim_shuffle(np.argsort(dims).tolist()).reshape(tensor.shape)
    else:
        order = None if tensor.is_contiguous else _ElementOrder(tensor)
        source = tensor.flatten() if order is None else order.applied(tensor)
        new = graph.add_variable(type, [tensor.n_elems], name or "clone", metadata=metadata)
        result = new.reshape(tensor.shape) if order is None else order.undone(new, tensor.shape)
    graph.top.set_tile_mapping(new, graph.top.get_tile_mapping(source, require_complete=False))
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

"""How tensors lie in memory: their elements in memory order, and clones that keep that order."""

from collections.abc import Callable

import numpy as np

from tremula.base.types import QUARTER, Type
from tremula.poplar.graph import Graph
from tremula.poplar.runs import Pieces, Runs, compress
from tremula.poplar.tensor import Tensor


def simplified(tensor: Tensor, others: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """A tensor with its dimensions or elements in memory order; others of its shape go along.

    Dimensions of a strided view are permuted, so that others still show what they repeat. Only
    where that is not enough, all become flat.
    """
    if tensor.pieces is None:
        dims = memory_order(tensor)
        return tensor.dim_shuffle(dims), [t.dim_shuffle(dims) for t in others]
    if tensor.is_contiguous:
        return tensor, others
    order = _ElementOrder(tensor)
    return order.applied(tensor), [order.applied(t) for t in others]


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
    if tensor.pieces is None:
        dims = memory_order(tensor)
        source = tensor.dim_shuffle(dims)
        new = graph.add_variable(type, source.shape, name or "clone", metadata=metadata)
        result = new.dim_shuffle(np.argsort(dims).tolist())
    else:
        order = None if tensor.is_contiguous else _ElementOrder(tensor)
        source = tensor.flatten() if order is None else order.applied(tensor)
        new = graph.add_variable(type, [tensor.n_elems], name or "clone", metadata=metadata)
        result = new.reshape(tensor.shape) if order is None else order.undone(new, tensor.shape)
    graph.top.set_tile_mapping(new, graph.top.get_tile_mapping(source, require_complete=False))
    return result


def distinct_part(tensor: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The elements of a tensor each once, and the function that repeats a clone of them alike."""
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

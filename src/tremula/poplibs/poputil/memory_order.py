"""The elements of a tensor in the order of their addresses, found once for views that lie alike.

The weights of a model, their gradients and the states of their optimiser share a few layouts.
Which elements come first in memory follows from the layout alone, so it is worked out for the first
tensor of each kind and kept, with the graph, for the others.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np

from tremula.poplar.tensors.blocks import BlockCuts, BlockPieces
from tremula.poplar.tensors.layout import layout_of_pieces, moved_pieces
from tremula.poplar.tensors.runs import Pieces, Runs, joined_runs, merge_dims, ones
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.variables import VariableTable

Ints = np.ndarray
# Orders hold columns as long as a layout has pieces; layers that are alike come close together.
N_ORDERS = 16
N_TENSORS = 4  # per order


def blocks_of(tensor: Tensor) -> BlockCuts | None:
    """The cuts of a tensor that is all of a blocked matrix, row by row."""
    pieces = tensor.pieces
    if not isinstance(pieces, BlockPieces) or tensor.offset or tensor.n_elems != pieces.n_elems:
        return None
    return pieces.cuts if merge_dims(tensor.shape, tensor.strides)[1] == [1] else None


def layout_key(tensor: Tensor) -> tuple[object, ...] | None:
    """Equal for views with the same memory layout, element by element, each within one variable.

    None for views of several variables.
    """
    variables, n_bytes = tensor.variables, tensor.type.n_bytes
    # The stride of a dimension of size 1 says nothing.
    strides = tuple(s if n > 1 else 0 for n, s in zip(tensor.shape, tensor.strides, strict=True))
    if tensor.pieces is None:
        base = variables.base_bytes[variables.id_at(tensor.offset * n_bytes)] // n_bytes
        return None, tensor.offset - base, tensor.shape, strides
    layout = layout_of_pieces(tensor.pieces, n_bytes, variables)
    if len(layout.variables) != 1:
        return None
    return layout.digest, tensor.offset, tensor.shape, strides


@dataclass(frozen=True, slots=True, eq=False)
class MemoryOrder:
    """Intervals of the elements of a flattened tensor, in the order of their addresses."""

    begin: Ints
    end: Ints
    cuts: BlockCuts | None = None  # of a tensor that is all of a blocked matrix
    known: OrderedDict[object, Tensor] = field(default_factory=OrderedDict)

    def applied(self, tensor: Tensor) -> Tensor:
        """A tensor flat, its elements in this order."""
        if self.cuts is not None and blocks_of(tensor) == self.cuts:
            assert isinstance(tensor.pieces, BlockPieces), "only these have cuts"
            return _flat(tensor, tensor.pieces.offset)
        layout = layout_key(tensor)
        if layout is None:
            return self._taken(tensor)
        key = (tensor.type.n_bytes, *layout)
        if key in self.known:
            return _moved(self.known[key], tensor)
        taken = self.known[key] = self._taken(tensor)
        if len(self.known) > N_TENSORS:
            self.known.popitem(last=False)
        return taken

    def _taken(self, tensor: Tensor) -> Tensor:
        runs = joined_runs(Pieces(tensor.runs()).lookup_intervals(self.begin, self.end)[0])
        if len(runs.start) == 1 and runs.stride[0] == 1:
            return _flat(tensor, int(runs.start[0]))
        return _flat(tensor, 0, Pieces(runs))

    def undone(self, flat: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A contiguous flat tensor in this order, as the view the order was made from."""
        if self.cuts is not None:
            rows = (self.cuts.n_rows, self.cuts.n_columns)
            pieces: Pieces = BlockPieces(flat.offset, self.cuts)
            return Tensor(flat.variables, flat.type, 0, rows, (rows[1], 1), pieces).reshape(shape)
        by_element = np.argsort(self.begin, kind="stable")
        count = self.end - self.begin
        place = flat.offset + np.cumsum(count) - count
        runs = Runs(place[by_element], count[by_element], ones(len(count)))
        return _flat(flat, 0, Pieces(runs)).reshape(shape)


def _flat(like: Tensor, offset: int, pieces: Pieces | None = None) -> Tensor:
    return Tensor(like.variables, like.type, offset, (like.n_elems,), (1,), pieces)


def _moved(known: Tensor, like: Tensor) -> Tensor:
    """A flat tensor of one variable, in the variable of another tensor."""
    variables, n_bytes = like.variables, like.type.n_bytes
    (old,), (new,) = (_variables_of(t) for t in (known, like))
    if known.pieces is not None:
        return _flat(like, 0, moved_pieces(known.pieces, n_bytes, variables, {old: new}))
    shift = (variables.base_bytes[new] - variables.base_bytes[old]) // n_bytes
    return _flat(like, known.offset + shift)


def _variables_of(tensor: Tensor) -> tuple[int, ...]:
    variables, n_bytes = tensor.variables, tensor.type.n_bytes
    if tensor.pieces is None:
        return (variables.id_at(tensor.offset * n_bytes),)
    return layout_of_pieces(tensor.pieces, n_bytes, variables).variables


class _Known:
    """What was found out about the layouts of one graph."""

    def __init__(self) -> None:
        self.orders: OrderedDict[object, MemoryOrder] = OrderedDict()
        self.repeats: dict[object, bool] = {}


_KNOWN: WeakKeyDictionary[VariableTable, _Known] = WeakKeyDictionary()


def order_of(tensor: Tensor) -> MemoryOrder:
    """The order of a tensor's elements in memory."""
    orders = _KNOWN.setdefault(tensor.variables, _Known()).orders
    cuts = blocks_of(tensor)
    key = layout_key(tensor) if cuts is None else cuts
    if key is None:
        return _found(tensor)
    if key not in orders:
        orders[key] = _found(tensor) if cuts is None else MemoryOrder(*cuts.lines(), cuts)
        if len(orders) > N_ORDERS:
            orders.popitem(last=False)
    orders.move_to_end(key)
    return orders[key]


def _found(tensor: Tensor) -> MemoryOrder:
    begin, end = tensor.ordered_intervals()
    count = (end - begin) // tensor.type.n_bytes
    first = np.cumsum(count) - count
    order = np.argsort(begin, kind="stable")
    return MemoryOrder(first[order], (first + count)[order])


def known_repeats(tensor: Tensor) -> bool:
    """Whether some element of a tensor appears twice; views that lie alike are looked at once."""
    key = layout_key(tensor)
    if key is None:
        return tensor.contains_aliases
    repeats = _KNOWN.setdefault(tensor.variables, _Known()).repeats
    if key not in repeats:
        repeats[key] = tensor.contains_aliases
    return repeats[key]

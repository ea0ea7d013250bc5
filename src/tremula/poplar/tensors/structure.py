"""How tensors lie in memory, and orders that simplify them."""

from collections.abc import Sequence

import numpy as np

from tremula.base.errors import TensorCreationError
from tremula.base.source import user_source
from tremula.poplar.tensors.tensor import Interval, Tensor, concat


def sorted_contiguous_regions(
    tensor: Tensor, intervals: Sequence[Interval], *, remove_aliased: bool = False
) -> list[list[Interval]]:
    """Group the given parts of a flattened tensor by where they lie in memory.

    Each group is adjacent in memory, in memory order; groups are in memory order too.
    """
    flat = tensor.flatten()
    begin, end, position = [], [], []
    for interval in intervals:
        part = flat.slice(interval.begin, interval.end)
        part_begin, part_end = part.ordered_intervals()
        n_elems = (part_end - part_begin) // tensor.type.n_bytes
        begin.append(part_begin)
        end.append(part_end)
        position.append(interval.begin + np.cumsum(n_elems) - n_elems)
    if not begin:
        return []
    low, high, at = (np.concatenate(column) for column in (begin, end, position))
    order = np.argsort(low, kind="stable")
    n_bytes = tensor.type.n_bytes
    return _grouped(low[order], high[order], at[order], n_bytes, remove_aliased)


def _grouped(
    begin: np.ndarray, end: np.ndarray, position: np.ndarray, n_bytes: int, remove_aliased: bool
) -> list[list[Interval]]:
    groups: list[list[Interval]] = []
    reached = -1
    for low, high, at in zip(begin.tolist(), end.tolist(), position.tolist(), strict=True):
        if remove_aliased and low < reached:
            at += (min(reached, high) - low) // n_bytes
            low = min(reached, high)
        if low == high:
            continue
        interval = Interval(at, at + (high - low) // n_bytes)
        if low == reached and groups:
            last = groups[-1][-1]
            if last.end == interval.begin:
                groups[-1][-1] = Interval(last.begin, interval.end)
            else:
                groups[-1].append(interval)
        else:
            groups.append([interval])
        reached = max(reached, high)
    return groups


class TensorRearranger:
    """The permutation that puts a tensor's elements in memory order, for tensors of its size."""

    def __init__(self, tensor: Tensor):
        begin, end = tensor.ordered_intervals()
        n_elems = (end - begin) // tensor.type.n_bytes
        first = np.cumsum(n_elems) - n_elems
        order = np.argsort(begin, kind="stable")
        self.n_elems = tensor.n_elems
        self._parts = [Interval(int(first[i]), int(first[i] + n_elems[i])) for i in order]

    def rearrange(self, tensor: Tensor) -> Tensor:
        """A flat tensor with the elements in the simple order."""
        self._check(tensor)
        flat = tensor.flatten()
        return concat([flat.slice(part) for part in self._parts])

    def undo(self, tensor: Tensor) -> Tensor:
        """The reverse of `rearrange`."""
        self._check(tensor)
        sizes = [len(part) for part in self._parts]
        ends = np.cumsum(sizes).tolist()
        place = {
            part.begin: (e - n, e) for part, n, e in zip(self._parts, sizes, ends, strict=True)
        }
        return concat([tensor.slice(*place[part.begin]) for part in sorted(self._parts)])

    def _check(self, tensor: Tensor) -> None:
        if tensor.n_elems != self.n_elems:
            raise TensorCreationError(
                f"this order is for {self.n_elems} elements, got {tensor.n_elems}.",
                source=user_source(),
                hint="use a tensor of the same size",
            )


def reorder_to_simplify(
    tensor: Tensor, others: Sequence[Tensor] = ()
) -> tuple[Tensor, list[Tensor]]:
    """Permute a tensor into memory order, and others the same way; all become flat."""
    rearranger = TensorRearranger(tensor)
    return rearranger.rearrange(tensor), [rearranger.rearrange(other) for other in others]


def unbroadcast(tensor: Tensor) -> Tensor:
    """The tensor without repeated dimensions: those become size 1."""
    index = tuple(
        slice(0, 1) if stride == 0 and size > 1 else slice(None)
        for size, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
    return tensor[index] if index else tensor

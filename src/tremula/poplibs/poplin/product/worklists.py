"""Worklists: the items a vertex's workers multiply, for any kernel, stride and padding.

An item is one small dense product, out[rows, :] += left[rows, inner] · right[inner, :]. Every share
of a convolution, of its gradient or of a weight update is a list of them. Take a field of 4 inputs,
a kernel of 3 taps and a padding of 1, so 4 outputs; 2 input channels, 5 output channels:

                                                       `pair` finds (tap, first output,
    tap 0 meets outputs   1 2 3   at inputs 0 1 2      number of outputs, first input):
    tap 1 meets outputs 0 1 2 3   at inputs 0 1 2 3    (0, 1, 3, 0), (1, 0, 4, 0),
    tap 2 meets outputs 0 1 2     at inputs 1 2 3      (2, 0, 3, 1)

Consecutive taps use consecutive inputs, which are adjacent in memory.
`_segments` therefore cuts the outputs where their run of taps changes, and each segment is an item
whose inner length is taps · input channels:

    item (out, left, right, rows, inner, zeroed)      the first three count elements of fields
         (  0,    0,     0,    4,     0,      1)      rows 0…3 of `out` start from zero
         (  0,    0,    10,    1,     4,      0)      output 0: taps 1, 2 · 2 channels, from input 0
         (  5,    0,     0,    2,     6,      0)      outputs 1, 2: all taps, from input 0
         ( 15,    4,     0,    1,     4,      0)      output 3: taps 0, 1, from input 2

Outer field dimensions give more rows of `out`, their taps more items for a row. `_Units` collects
items by row, cuts rows into chunks if there are fewer than workers, and deals them to the workers.
"""

from functools import cache
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from tremula.poplibs.poplin.product.conv_params import FieldDim
from tremula.poplibs.poplin.product.vertices import ITEM

ROWS_PER_BLOCK = 4  # the native product computes rows in blocks of this size


class Pairing(NamedTuple):
    """Which outputs of a part of a dimension use which kernel taps, and at which inputs.

    `taps[j]` is (tap, first output, number of outputs, first input), all relative to the part;
    outputs follow each other at `output_step` and inputs at `input_step`. Inputs are those in
    [low, high) of the whole dimension.
    """

    n_out: int
    n_taps: int
    low: int
    high: int
    output_step: int
    input_step: int
    taps: tuple[tuple[int, int, int, int], ...]

    def relative(self) -> "Pairing":
        """This pairing with inputs counted from its first one."""
        return self._replace(low=0, high=self.high - self.low)


@cache
def pair(dim: FieldDim, out_begin: int, out_end: int, tap_begin: int, tap_end: int) -> Pairing:
    """The pairing of outputs [out_begin, out_end) with taps [tap_begin, tap_end)."""
    shared = np.gcd(dim.stride, dim.dilation)
    output_step, input_step = int(dim.dilation // shared), int(dim.stride // shared)
    outputs = np.arange(out_begin, out_end)
    result = []
    for tap in range(tap_begin, tap_end):
        place = outputs * dim.stride + tap * dim.step - dim.pad
        is_met = (place % dim.dilation == 0) & (place >= 0) & (place < dim.n_in * dim.dilation)
        met = np.flatnonzero(is_met)
        if len(met):
            first = int(place[met[0]] // dim.dilation)
            result.append((tap - tap_begin, int(met[0]), len(met), first))
    low = min((first for _, _, _, first in result), default=0)
    high = max((first + (n - 1) * input_step + 1 for _, _, n, first in result), default=0)
    taps = tuple((tap, out, n, first - low) for tap, out, n, first in result)
    return Pairing(
        out_end - out_begin, tap_end - tap_begin, low, high, output_step, input_step, taps
    )


class WorklistShape(NamedTuple):
    """What distinguishes the worklists of two vertices."""

    n_groups: int
    n_batch: int
    pairings: tuple[Pairing, ...]
    n_in: int
    n_out: int


class Worklist(NamedTuple):
    """Items of all workers, and the strides they share; see `vertices.conv_partial`."""

    items: np.ndarray  # int32[n_items, ITEM]
    first_item: np.ndarray  # int32[n_workers + 1]
    out_stride: int
    left_stride: int
    left_step: int
    right_stride: int


class _Segment(NamedTuple):
    """Outputs of the last dimension that use the same run of taps."""

    out: int
    n_out: int
    tap: int
    n_taps: int
    input: int


def _segments(pairing: Pairing) -> list[_Segment]:
    """Taps joined into one run of inputs where they follow each other, as they do undilated."""
    is_plain = pairing.output_step == 1 and all(
        b[0] == a[0] + 1 and b[3] + (a[1] - b[1]) * pairing.input_step == a[3] + 1
        for a, b in pairwise(pairing.taps)
    )
    if not is_plain or not pairing.taps:
        return [_Segment(out, n, tap, 1, at) for tap, out, n, at in pairing.taps]
    cuts = sorted({out for _, out, _, _ in pairing.taps} | {o + n for _, o, n, _ in pairing.taps})
    result = []
    for begin, end in pairwise(cuts):
        met = [t for t in pairing.taps if t[1] <= begin and end <= t[1] + t[2]]
        if met:
            tap, out, _, at = met[0]
            start = at + (begin - out) * pairing.input_step
            result.append(_Segment(begin, end - begin, tap, len(met), start))
    return result


def _outer_pairs(pairings: tuple[Pairing, ...]) -> tuple[np.ndarray, ...]:
    """(output, tap, input) of all outer dimensions as flat row numbers, sorted by output."""
    output, tap, place = (np.zeros(1, np.int64) for _ in range(3))
    for p in pairings:
        rows = [
            (out + j * p.output_step, t, at + j * p.input_step)
            for t, out, n, at in p.taps
            for j in range(n)
        ]
        o, t, f = np.array(rows, np.int64).reshape(-1, 3).T
        output = (output[:, None] * p.n_out + o).ravel()
        tap = (tap[:, None] * p.n_taps + t).ravel()
        place = (place[:, None] * (p.high - p.low) + f).ravel()
    order = np.argsort(output, kind="stable")
    return output[order], tap[order], place[order]


class _Outer(NamedTuple):
    """All field dimensions but the last, flat: outputs, taps and inputs that belong together."""

    output: np.ndarray
    tap: np.ndarray
    place: np.ndarray
    n_out: int
    n_in: int
    n_taps: int

    @classmethod
    def of(cls, pairings: tuple[Pairing, ...]) -> "_Outer":
        output, tap, place = _outer_pairs(pairings)
        return cls(
            output,
            tap,
            place,
            prod(p.n_out for p in pairings),
            prod(p.high - p.low for p in pairings),
            prod(p.n_taps for p in pairings),
        )


@cache
def forward_worklist(shape: WorklistShape, n_workers: int) -> Worklist:
    """Rows are outputs of the last dimension; the inner length is taps times input channels."""
    last = shape.pairings[-1]
    output, tap, place, n_rows_out, n_rows_in, n_taps_outer = _Outer.of(shape.pairings[:-1])
    width_in = last.high - last.low
    segments = _segments(last)
    per_item = []  # columns of items without their row of the output
    for s in segments:
        left = (place * width_in + s.input) * shape.n_in
        right = (tap * last.n_taps + s.tap) * shape.n_in * shape.n_out
        per_item.append((output, s.out, left, right, s.n_out, s.n_taps * shape.n_in))
    unit = _Units(shape.n_groups * shape.n_batch * n_rows_out, last.n_out, shape.n_out, n_workers)
    n_in_group = shape.n_batch * n_rows_in * width_in * shape.n_in
    n_weights = n_taps_outer * last.n_taps * shape.n_in * shape.n_out
    for row, out, left, right, n_out, n_inner in per_item:
        for g in range(shape.n_groups):
            for b in range(shape.n_batch):
                first = (g * shape.n_batch + b) * n_rows_out
                shift = g * n_in_group + b * n_rows_in * width_in * shape.n_in
                unit.add(first + row, out, left + shift, right + g * n_weights, n_out, n_inner)
    steps = (
        last.output_step * shape.n_out, last.input_step * shape.n_in, 1, shape.n_out,
    )  # fmt: skip
    return unit.finish(last.output_step, last.input_step * shape.n_in, steps)


@cache
def update_worklist(shape: WorklistShape, n_workers: int) -> Worklist:
    """Rows are input channels; the inner length is a run of outputs of the last dimension."""
    last = shape.pairings[-1]
    output, tap, place, n_rows_out, n_rows_in, n_taps_outer = _Outer.of(shape.pairings[:-1])
    width_in = last.high - last.low
    unit = _Units(shape.n_groups * n_taps_outer * last.n_taps, shape.n_in, shape.n_out, n_workers)
    for t, out, n, at in last.taps:
        for g in range(shape.n_groups):
            for b in range(shape.n_batch):
                image = g * shape.n_batch + b
                left = ((image * n_rows_in + place) * width_in + at) * shape.n_in
                right = ((image * n_rows_out + output) * last.n_out + out) * shape.n_out
                row = (g * n_taps_outer + tap) * last.n_taps + t
                unit.add(row, 0, left, right, shape.n_in, n)
    steps = (
        shape.n_out, 1, last.input_step * shape.n_in, last.output_step * shape.n_out,
    )  # fmt: skip
    return unit.finish(1, 1, steps)


class _Units:
    """Collects items by row of the output, and deals the rows to the workers."""

    def __init__(self, n_units: int, n_rows: int, n_cols: int, n_workers: int) -> None:
        self.n_units, self.n_rows, self.n_cols = n_units, n_rows, n_cols
        self.n_workers = n_workers
        self.columns: list[np.ndarray] = []

    def add(
        self, row: np.ndarray, out: int, left: np.ndarray, right: np.ndarray, n: int, n_inner: int
    ) -> None:
        columns = np.broadcast_arrays(row, out, left, right, n, n_inner)
        self.columns.append(np.stack(columns, axis=1).astype(np.int64))

    def finish(self, out_step: int, left_stride: int, steps: tuple[int, int, int, int]) -> Worklist:
        """Cut rows into chunks where there are few units; zero each chunk first."""
        result = np.concatenate([np.empty((0, ITEM), np.int64), *self.columns])
        has_enough = self.n_units >= 2 * self.n_workers
        n_chunks = 1 if has_enough else -(-self.n_workers // max(self.n_units, 1))
        size = -(-self.n_rows // n_chunks)
        size = max(1, -(-size // ROWS_PER_BLOCK) * ROWS_PER_BLOCK)
        cuts = np.arange(0, max(self.n_rows, 1), size) if out_step == 1 else np.zeros(1, np.int64)
        size = size if out_step == 1 else self.n_rows
        items, keys = [], []
        for chunk, low in enumerate(cuts.tolist()):
            high = min(low + size, self.n_rows)
            key, zeroing = self._zeroing(chunk, len(cuts), low, high)
            items.append(zeroing)
            keys.append(key)
            key, work = self._cut(result, chunk, len(cuts), low, high, out_step, left_stride)
            items.append(work)
            keys.append(key)
        return self._dealt(np.concatenate(items), np.concatenate(keys), len(cuts), steps)

    def _zeroing(self, chunk: int, n_chunks: int, low: int, high: int) -> tuple:
        unit = np.arange(self.n_units)
        items = np.zeros((self.n_units, ITEM), np.int64)
        items[:, 0] = (unit * self.n_rows + low) * self.n_cols
        items[:, 3], items[:, 5] = high - low, 1
        return unit * n_chunks + chunk, items

    def _cut(
        self, rows: np.ndarray, chunk: int, n_chunks: int, low: int, high: int, out_step: int,
        left_stride: int,
    ) -> tuple:  # fmt: skip
        """The part of each item whose rows are in [low, high)."""
        row, out, left, right, n, n_inner = rows.T
        begin = np.maximum(out, low) if out_step == 1 else out
        end = np.minimum(out + n, high) if out_step == 1 else out + n
        items = np.stack(
            [
                (row * self.n_rows + begin) * self.n_cols,
                left + (begin - out) * left_stride,
                right,
                end - begin,
                n_inner,
                np.zeros_like(n),
            ],
            axis=1,
        )
        is_filled = end > begin
        return (row * n_chunks + chunk)[is_filled], items[is_filled]

    def _dealt(
        self, items: np.ndarray, keys: np.ndarray, n_chunks: int, steps: tuple[int, int, int, int]
    ) -> Worklist:
        order = np.argsort(keys, kind="stable")  # a chunk's zeroing comes first
        items, keys = _zeroed_by_first(items[order], keys[order])
        n_units = self.n_units * n_chunks
        bounds = np.arange(self.n_workers + 1) * n_units // self.n_workers
        first = np.searchsorted(keys, bounds, side="left")
        return Worklist(items.astype(np.int32), first.astype(np.int32), *steps)


def _zeroed_by_first(items: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Let the item after a zeroing do it, if it has the same rows."""
    same = (items[:-1, 5] == 1) & (items[1:, 5] == 0) & (keys[:-1] == keys[1:])
    same &= (items[:-1, 0] == items[1:, 0]) & (items[:-1, 3] == items[1:, 3])
    items[1:, 5] |= same
    remains = np.append(~same, True)
    return items[remains], keys[remains]

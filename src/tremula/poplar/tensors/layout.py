"""Layouts of tensors without addresses: which variables a view covers, and where in them."""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tremula.poplar.tensors.blocks import BlockPieces
from tremula.poplar.tensors.interval_sweeps import number_holders
from tremula.poplar.tensors.runs import Pieces, Runs
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.variables import VariableTable

Ints = np.ndarray
# Which variable of a template each address belongs to: one for all, or one each (-1: none).
Slots = int | Ints


class PiecesLayout(NamedTuple):
    """Of a virtual buffer: its variables as they are met, the slot of each run, and a digest.

    Equal digests mean equal runs relative to the variables in equal slots.
    """

    variables: tuple[int, ...]
    slots: Slots
    digest: bytes


# Bytes of a column from which on Python's hash of it stands for it.
_MANY_BYTES = 4096


def key_bytes(column: Ints) -> bytes | memoryview:
    """What a digest that serves as a key, in this process alone, takes in for a column.

    A long one is well mixed to 64 bits first, at several times the speed of a digest.
    """
    if column.nbytes < _MANY_BYTES:
        return np.ascontiguousarray(column).data
    return hash(column.tobytes()).to_bytes(8, "little", signed=True)


def digest_of(*columns: Ints) -> bytes:
    """A digest of columns as a key in this process; it does not cover their lengths."""
    digest = hashlib.sha1(usedforsecurity=False)
    for column in columns:
        digest.update(key_bytes(column))
    return digest.digest()


def digest_of_runs(runs: Runs, slots: Slots, base: Ints) -> bytes:
    """Of runs relative to base[slot], in elements; base has one more entry, for slot -1."""
    is_one = isinstance(slots, int)
    columns = [
        column[:1] if len(column) and bool((column == column[0]).all()) else column
        for column in runs[1:]
    ]
    columns.append(np.array([slots]) if is_one else slots)
    lengths = np.array([len(c) for c in (runs.start, *columns)])
    return digest_of(lengths, runs.start - base[slots], *columns)


def layout_of_pieces(pieces: Pieces, n_bytes: int, variables: VariableTable) -> PiecesLayout:
    """The layout of pieces, computed once and kept with them."""
    if pieces.layout is None and isinstance(pieces, BlockPieces):
        variable = variables.id_at(pieces.offset * n_bytes)
        first = pieces.offset - variables.base_bytes[variable] // n_bytes
        cuts = pieces.cuts
        digest = digest_of(np.array([first, len(cuts.row)]), cuts.row, cuts.column)
        pieces.layout = PiecesLayout((variable,), 0, digest)
    elif pieces.layout is None:
        ids: dict[int, int] = {}
        slots = slots_of(pieces.runs, n_bytes, variables, ids)
        base = np.array([*(variables.base_bytes[v] for v in ids), 0], np.int64) // n_bytes
        pieces.layout = PiecesLayout(tuple(ids), slots, digest_of_runs(pieces.runs, slots, base))
    return pieces.layout


def moved_pieces(
    pieces: Pieces, n_bytes: int, variables: VariableTable, ids: Mapping[int, int]
) -> Pieces:
    """Pieces moved to other variables: ids[v] in place of v."""
    met, slots, digest = layout_of_pieces(pieces, n_bytes, variables)
    new, base = tuple(ids.get(v, v) for v in met), variables.base_bytes
    shift = [base[n] - base[v] for n, v in zip(new, met, strict=True)]
    elems = np.array([*shift, 0], np.int64) // n_bytes
    result = pieces.moved(elems, slots)
    result.layout = PiecesLayout(new, slots, digest)
    if len(set(new)) == len(new):  # what lay apart still does
        result.repeats, result.alike = pieces.repeats, pieces.alike or pieces
    return result


def variables_met(tensor: Tensor) -> tuple[int, ...]:
    """Variables of a tensor, or of the virtual buffer it is a view of, as they are met."""
    n_bytes = tensor.type.n_bytes
    if tensor.pieces is None:
        return (tensor.variables.id_at(tensor.offset * n_bytes),)
    return layout_of_pieces(tensor.pieces, n_bytes, tensor.variables).variables


# -- slots: addresses that follow their variables --------------------------------------------------


def slots_of(runs: Runs, n_bytes: int, variables: VariableTable, ids: dict[int, int]) -> Slots:
    """Slots of runs; variables that are met for the first time get the next ones."""
    start = runs.start
    if not len(start):
        return -1
    filled = start if bool(runs.count.all()) else start[runs.count > 0]
    if not len(filled):
        return np.full(len(start), -1, np.int64)
    low, high = (variables.id_at(int(s) * n_bytes) for s in (filled.min(), filled.max()))
    if low == high and len(filled) == len(start):
        return ids.setdefault(low, len(ids))
    base, number = variables.bases()[low : high + 1], np.full(high + 1 - low, -1, np.int64)
    for variable, slot in ids.items():
        if low <= variable <= high:
            number[variable - low] = slot
    met, slots = np.empty(len(base), np.int64), np.empty(len(start), np.int64)
    (n_new,) = number_holders(start, runs.count, n_bytes, base, len(ids), number, met, slots)
    for variable in met[:n_new].tolist():  # in the order they are met
        ids[low + variable] = len(ids)
    return slots


def moved_runs(runs: Runs, slots: Slots, shift: Ints, n_bytes: int) -> Runs:
    """Runs with every variable moved by its shift."""
    return Runs(moved(runs.start, slots, shift, n_bytes), runs.count, runs.stride)


def moved(addresses: Ints, slots: Slots, shift: Ints, n_bytes: int) -> Ints:
    """Element addresses with every variable moved by its shift: bases are multiples of 64 bytes."""
    return addresses + (shift // n_bytes)[slots]

"""Layouts of tensors without addresses: which variables a view meets, how it lies in them."""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tremula.poplar.tensors.runs import Pieces, Runs
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.variables import VariableTable
from tremula.poplar.vertices.template import Slots, slots_of

Ints = np.ndarray


class PiecesLayout(NamedTuple):
    """Of a virtual buffer: its variables as they are met, the slot of each run, and a digest.

    Equal digests mean equal runs relative to the variables in equal slots.
    """

    variables: tuple[int, ...]
    slots: Slots
    digest: bytes


def digest_of(*columns: Ints) -> bytes:
    """A digest of columns; their lengths must be clear from elsewhere."""
    digest = hashlib.sha1(usedforsecurity=False)  # the fastest that chips have in hardware
    for column in columns:
        digest.update(np.ascontiguousarray(column).data)
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
    """Remembered by the pieces."""
    if pieces.layout is None:
        ids: dict[int, int] = {}
        slots = slots_of(pieces.runs, n_bytes, variables, ids)
        base = np.array([*(variables.base_bytes[v] for v in ids), 0], np.int64) // n_bytes
        pieces.layout = PiecesLayout(tuple(ids), slots, digest_of_runs(pieces.runs, slots, base))
    return pieces.layout


def moved_pieces(
    pieces: Pieces, n_bytes: int, variables: VariableTable, ids: Mapping[int, int]
) -> Pieces:
    """The same pieces of other variables: ids[v] in place of v."""
    met, slots, digest = layout_of_pieces(pieces, n_bytes, variables)
    new, base = tuple(ids.get(v, v) for v in met), variables.base_bytes
    shift = [base[n] - base[v] for n, v in zip(new, met, strict=True)]
    elems = np.array([*shift, 0], np.int64) // n_bytes
    start, count, stride = pieces.runs
    result = pieces.moved(Runs(start + elems[slots], count, stride))
    result.layout = PiecesLayout(new, slots, digest)
    return result


def variables_met(tensor: Tensor) -> tuple[int, ...]:
    """Variables of a tensor, or of the virtual buffer it is a view of, as they are met."""
    n_bytes = tensor.type.n_bytes
    if tensor.pieces is None:
        return (tensor.variables.id_at(tensor.offset * n_bytes),)
    return layout_of_pieces(tensor.pieces, n_bytes, tensor.variables).variables

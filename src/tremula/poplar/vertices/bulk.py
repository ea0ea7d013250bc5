"""Bulk connection: one tensor, or one table of slices, for a field of many vertices at once."""

from dataclasses import dataclass

import numpy as np

from tremula.base.errors import GraphConnectionError, TypeMismatch
from tremula.base.source import user_source
from tremula.codelets.spec import FieldKind, FieldSpec
from tremula.poplar.tensors.runs import Pieces, Runs, concat_runs, counting, ones, starts_of
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.columns import EdgeColumn


@dataclass(frozen=True, slots=True)
class Slices:
    """Many slices of one tensor: slice j is tensor.flatten()[begin[j]:end[j]].

    With `start` (int[n+1]) vertex i gets the sub-vectors start[i] … start[i+1]; without, slice i.
    """

    tensor: Tensor
    begin: np.ndarray
    end: np.ndarray
    start: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Ragged:
    """State vectors of many vertices: vertex i gets value[start[i]:start[i + 1]]."""

    value: np.ndarray
    start: np.ndarray

    def rows(self) -> list[np.ndarray]:
        """The vectors, one by one."""
        return np.split(self.value, self.start[1:-1])


def bulk_edge(codelet: str, spec: FieldSpec, value: object, n_rows: int) -> EdgeColumn:
    """The column that `value` makes of a field for n_rows vertices."""
    tensor = value.tensor if isinstance(value, Slices) else value
    if not isinstance(tensor, Tensor):
        raise GraphConnectionError(
            f"field {codelet}.{spec.name} got {type(value).__name__}, expected a Tensor or Slices.",
            source=user_source(),
            hint="give a tensor whose first dimension is the number of vertices",
        )
    if tensor.type != spec.type:
        raise TypeMismatch(
            f"field {codelet}.{spec.name} has type {spec.type}, got a tensor of {tensor.type}.",
            source=user_source(),
            hint=f"connect a tensor of {spec.type}, or reinterpret() it",
        )
    column = _from_slices(value) if isinstance(value, Slices) else _from_tensor(spec, tensor)
    if column is None or column.n_rows != n_rows:
        got = (
            f"Slices for {column.n_rows}"
            if column and tensor is not value
            else f"shape {list(tensor.shape)}"
        )
        raise GraphConnectionError(
            f"field {codelet}.{spec.name} is a {spec.kind.value}; {n_rows} vertices need a tensor "
            f"of shape {_wanted_shape(spec.kind, n_rows)}, got {got}.",
            source=user_source(),
            hint="reshape the tensor, or give Slices(tensor, begin, end)",
        )
    return column


_INNER_RANK = {
    FieldKind.SCALAR: 0, FieldKind.VECTOR: 1, FieldKind.SCALAR_LIST: 1, FieldKind.VECTOR_LIST: 2,
}  # fmt: skip


def _wanted_shape(kind: FieldKind, n_rows: int) -> str:
    inner = {
        FieldKind.SCALAR: [], FieldKind.VECTOR: ["length"], FieldKind.SCALAR_LIST: ["count"],
        FieldKind.VECTOR_LIST: ["count", "length"],
    }[kind]  # fmt: skip
    return "[" + ", ".join([str(n_rows), *inner]) + "]"


def _from_tensor(spec: FieldSpec, tensor: Tensor) -> EdgeColumn | None:
    if tensor.rank != 1 + _INNER_RANK[spec.kind]:
        return None
    n_rows = tensor.shape[0]
    n_subs = tensor.shape[1] if spec.kind in (FieldKind.VECTOR_LIST, FieldKind.SCALAR_LIST) else 1
    length = tensor.shape[-1] if spec.kind in (FieldKind.VECTOR, FieldKind.VECTOR_LIST) else 1
    sub_start = counting(n_rows + 1)
    if n_subs != 1:
        sub_start = sub_start * n_subs
    if length == 0:
        none = np.zeros(n_rows * n_subs, np.int64)
        runs = Runs(none, none, ones(len(none)))
        return EdgeColumn(sub_start, counting(len(none) + 1), runs)
    if length == 1:
        one = ones(n_rows * n_subs)
        runs = Runs(tensor.addresses().ravel(), one, one)
        return EdgeColumn(sub_start, counting(len(one) + 1), runs)
    if tensor.pieces is None:
        starts = tensor[..., 0].addresses().ravel()
        n = len(starts)
        stride = tensor.strides[-1]
        strides = ones(n) if stride == 1 else np.full(n, stride, np.int64)
        runs = Runs(starts, np.full(n, length, np.int64), strides)
        return EdgeColumn(sub_start, counting(n + 1), runs)
    cuts = counting(n_rows * n_subs + 1) * length
    return _cut(tensor, cuts[:-1], cuts[1:], sub_start)


def _from_slices(value: Slices) -> EdgeColumn:
    begin, end = np.asarray(value.begin, np.int64), np.asarray(value.end, np.int64)
    start = counting(len(begin) + 1) if value.start is None else np.asarray(value.start, np.int64)
    if (
        len(begin) != len(end)
        or start[0] != 0
        or start[-1] != len(begin)
        or (np.diff(start) < 0).any()
    ):
        raise GraphConnectionError(
            f"Slices has {len(begin)} begins, {len(end)} ends, and a start from {start[0]} to "
            f"{start[-1]}.",
            source=user_source(),
            hint="give as many ends as begins; start ascends from 0 to their number",
        )
    bad = np.flatnonzero((begin < 0) | (end < begin) | (end > value.tensor.n_elems))
    if len(bad):
        j = int(bad[0])
        raise GraphConnectionError(
            f"slice {j} is [{begin[j]}, {end[j]}) but the tensor has {value.tensor.n_elems} "
            "elements.",
            source=user_source(),
            hint="use 0 <= begin <= end <= n_elems",
        )
    return _cut(value.tensor, begin, end, start)


def _cut(tensor: Tensor, begin: np.ndarray, end: np.ndarray, sub_start: np.ndarray) -> EdgeColumn:
    """Sub-vectors at position intervals of the flattened tensor."""
    flat = tensor.runs()
    if len(flat.start) == 1:
        n, stride = len(begin), flat.stride
        strides = ones(n) if stride[0] == 1 else np.repeat(stride, n)
        runs = Runs(flat.start[0] + stride[0] * begin, end - begin, strides)
        return EdgeColumn(sub_start, counting(len(begin) + 1), runs)
    runs, owner = Pieces(flat).lookup_intervals(begin, end)
    empty = np.flatnonzero(begin == end)
    if len(empty):  # every sub-vector has a run, even an empty one
        none = np.zeros(len(empty), np.int64)
        owner = np.concatenate((owner, empty))
        order = np.argsort(owner, kind="stable")
        runs = concat_runs([runs, Runs(none, none, ones(len(empty)))]).take(order)
        owner = owner[order]
    n_runs = np.bincount(owner, minlength=len(begin))
    return EdgeColumn(sub_start, starts_of(n_runs), runs)

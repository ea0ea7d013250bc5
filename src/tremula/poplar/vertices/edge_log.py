"""Edge logs: connections as they are made, and their freezing into columns."""

from array import array
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tremula.base.errors import GraphConnectionError, NoSizeSpecified, TypeMismatch
from tremula.base.source import user_source
from tremula.codelets.spec import FieldKind, FieldSpec
from tremula.poplar.tensors.runs import (
    Pieces,
    Runs,
    concat_runs,
    counting,
    expand,
    single_run,
    starts_of,
)
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.columns import EdgeColumn, joined_columns

_LISTS = (FieldKind.VECTOR_LIST, FieldKind.SCALAR_LIST)
# Makes the error of a row: (row, field, what is wrong, hint).
RowError = Callable[[int, FieldSpec, str, str], GraphConnectionError]


class EdgeLog:
    """Connections of one edge field, in the order they were made."""

    def __init__(self, codelet: str, spec: FieldSpec):
        self.codelet, self.spec, self.type = codelet, spec, spec.type
        # The common case, one run for a whole field, needs only these four columns.
        self.row, self.start = array("q"), array("q")
        self.count, self.stride = array("q"), array("q")  # left empty for scalars
        # The others: (row, sub-vector, number of the call, start, count, stride) each.
        self.parts = array("q")
        self.n_calls = 0
        self.blocks: list[tuple[int, EdgeColumn]] = []
        self.declared_sizes: dict[int, int] = {}

    def forget(self, row: int) -> None:
        """Drop what was connected to the last row."""
        while len(self.row) and self.row[-1] == row:
            for column in (self.row, self.start, self.count, self.stride):
                if len(column):
                    column.pop()
        while len(self.parts) and self.parts[-6] == row:
            del self.parts[-6:]
        self.declared_sizes.pop(row, None)

    def connector(self) -> Callable[[int, Any], None]:
        """The function that connects a value to a row; add_vertex calls it once per field."""
        fast = {FieldKind.SCALAR: self._connect_scalar, FieldKind.VECTOR: self._connect_vector}
        return fast.get(self.spec.kind, self._connect_list)

    def _connect_scalar(self, row: int, value: Tensor) -> None:
        if (
            value.__class__ is Tensor
            and value.type is self.type
            and value.pieces is None
            and not value.shape
        ):
            self.row.append(row)
            self.start.append(value.offset)
        else:
            self.connect_part(row, self._checked_rank(value, 0))

    def _connect_vector(self, row: int, value: Tensor) -> None:
        if value.__class__ is Tensor and value.type is self.type and value.pieces is None:
            shape = value.shape
            if len(shape) == 1:
                self.row.append(row)
                self.start.append(value.offset)
                self.count.append(shape[0])
                self.stride.append(value.strides[0] if shape[0] > 1 else 1)
                return
        self.connect_part(row, self._checked_rank(value, 1))

    def _connect_list(self, row: int, value: object) -> None:
        takes_rows = self.spec.kind is FieldKind.VECTOR_LIST
        if takes_rows and isinstance(value, Tensor) and value.rank == 2 and value.n_elems > 0:
            self._connect_rows(row, value)
            return
        parts = list(value) if isinstance(value, Iterable) else [value]
        self.declared_sizes[row] = len(parts)
        for sub, part in enumerate(parts):
            self.connect_element(row, part, sub)

    def connect_element(self, row: int, value: object, sub: int) -> None:
        """Connect one sub-vector of a list field, after a check of its rank."""
        wanted = 1 if self.spec.kind is FieldKind.VECTOR_LIST else 0
        self.connect_part(row, self._checked_rank(value, wanted), sub)

    def connect_part(self, row: int, value: Tensor, sub: int = 0) -> None:
        """Connect a tensor of any structure, or to one sub-vector of a list field."""
        self._check_type(value)
        runs = value.runs() if value.n_elems else single_run(0, 0, 1)
        self._log(row, sub, runs)

    def _connect_rows(self, row: int, matrix: Tensor) -> None:
        """Connect every row of a matrix as a sub-vector, all at once."""
        self._check_type(matrix)
        n_subs, length = matrix.shape
        self.declared_sizes[row] = n_subs
        if matrix.pieces is None:
            start = matrix.offset + matrix.strides[0] * np.arange(n_subs)
            stride = matrix.strides[1] if length > 1 else 1
            self._log(
                row,
                np.arange(n_subs),
                Runs(start, np.full(n_subs, length), np.full(n_subs, stride)),
            )
        else:
            cuts = np.arange(n_subs + 1) * length
            runs, sub = Pieces(matrix.runs()).lookup_intervals(cuts[:-1], cuts[1:])
            self._log(row, sub, runs)

    def _log(self, row: int, sub: int | np.ndarray, runs: Runs) -> None:
        self.n_calls += 1
        columns = np.empty((len(runs.start), 6), np.int64)
        columns[:, 0], columns[:, 1], columns[:, 2] = row, sub, self.n_calls
        columns[:, 3], columns[:, 4], columns[:, 5] = runs
        self.parts.frombytes(columns.tobytes())

    def _checked_rank(self, value: object, rank: int) -> Tensor:
        if not isinstance(value, Tensor):
            raise GraphConnectionError(
                f"field {self.codelet}.{self.spec.name} got {type(value).__name__}, "
                "expected a Tensor.",
                source=user_source(),
                hint="connect a Tensor; values are for state fields",
            )
        if value.rank == rank or (rank == 0 and value.n_elems == 1):
            return value
        raise GraphConnectionError(
            f"field {self.codelet}.{self.spec.name} is a {self.spec.kind.value} and takes a tensor "
            f"of rank {rank}, got shape {list(value.shape)}.",
            source=user_source(),
            hint="flatten() the tensor" if rank else "index one element",
        )

    def _check_type(self, value: Tensor) -> None:
        if value.type != self.type:
            raise TypeMismatch(
                f"field {self.codelet}.{self.spec.name} has type {self.type}, got a tensor of "
                f"{value.type}.",
                source=user_source(),
                hint=f"connect a tensor of {self.type}, or reinterpret() it",
            )

    def freeze(self, n_rows: int, error_at: RowError) -> EdgeColumn:
        """All connections as one column, or the error of the first bad row."""
        is_logged = len(self.row) or len(self.parts)
        if len(self.blocks) == 1 and not is_logged and self.blocks[0][1].n_rows == n_rows:
            return self.blocks[0][1]
        if not is_logged and not self.declared_sizes and self._follow_each_other(n_rows):
            return joined_columns([block for _, block in self.blocks])
        row, sub, call, runs = self._gathered()
        order = np.lexsort((sub, row))
        row, sub, call, runs = row[order], sub[order], call[order], runs.take(order)
        same_sub = (row[1:] == row[:-1]) & (sub[1:] == sub[:-1])
        twice = np.flatnonzero(same_sub & (call[1:] != call[:-1]))
        if len(twice):
            raise error_at(int(row[twice[0]]), self.spec, "is connected twice", "connect it once")
        first = np.flatnonzero(np.concatenate(([True], ~same_sub))) if len(row) else row
        n_subs = np.bincount(row[first], minlength=n_rows)
        self._check_complete(n_subs, sub[first], row[first], error_at)
        is_one_each = len(first) == len(row)
        run_start = counting(len(row) + 1) if is_one_each else np.append(first, len(row))
        return EdgeColumn(starts_of(n_subs), run_start, runs)

    def _follow_each_other(self, n_rows: int) -> bool:
        """Whether blocks are all rows in order, and none lacks what it needs."""
        row = 0
        for first_row, block in self.blocks:
            is_list = self.spec.kind in _LISTS
            if first_row != row or not (is_list or bool(np.diff(block.sub_start).all())):
                return False
            row += block.n_rows
        return row == n_rows

    def _gathered(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, Runs]:
        """(row, sub-vector, call, runs) of everything connected, in no order."""
        row, start = np.array(self.row, np.int64), np.array(self.start, np.int64)
        is_scalar = self.spec.kind is FieldKind.SCALAR
        ones = np.ones(len(row), np.int64)
        count = ones if is_scalar else np.array(self.count, np.int64)
        stride = ones if is_scalar else np.array(self.stride, np.int64)
        parts = np.array(self.parts, np.int64).reshape(-1, 6)
        rows, subs = [row, parts[:, 0]], [np.zeros_like(row), parts[:, 1]]
        calls = [np.arange(len(row)) - len(row), parts[:, 2]]  # all different
        runs = [Runs(start, count, stride), Runs(*parts[:, 3:].T)]
        for number, (first_row, block) in enumerate(self.blocks):
            within_sub = expand(np.diff(block.sub_start))[1]
            rows.append(block.row_of_run() + first_row)
            subs.append(np.repeat(within_sub, np.diff(block.run_start)))
            calls.append(np.full(len(block.runs.start), self.n_calls + 1 + number))
            runs.append(block.runs)
        return np.concatenate(rows), np.concatenate(subs), np.concatenate(calls), concat_runs(runs)

    def _check_complete(
        self, n_subs: np.ndarray, sub: np.ndarray, row: np.ndarray, error_at: RowError
    ) -> None:
        if self.spec.kind not in _LISTS:
            empty = np.flatnonzero(n_subs == 0)
            if len(empty):
                raise error_at(int(empty[0]), self.spec, "is not connected", "connect it")
            return
        is_bulk = np.zeros(len(n_subs), bool)  # bulk rows say themselves that they are empty
        for first_row, block in self.blocks:
            is_bulk[first_row : first_row + block.n_rows] = True
        for bad in np.flatnonzero((n_subs == 0) & ~is_bulk).tolist():
            if self.declared_sizes.get(bad, -1) != 0:
                raise error_at(bad, self.spec, "is not connected", "connect it")
        highest = np.zeros(len(n_subs), np.int64)
        np.maximum.at(highest, row, sub + 1)
        for bad in np.flatnonzero(highest != n_subs).tolist():
            raise error_at(bad, self.spec, "has a gap between its sub-vectors", "connect them all")
        for bad, size in self.declared_sizes.items():
            if size != n_subs[bad]:
                what = f"has size {size} but {n_subs[bad]} connected sub-vectors"
                raise error_at(bad, self.spec, what, "connect as many as set_field_size said")


def require_size(spec: FieldSpec, codelet: str) -> NoSizeSpecified:
    return NoSizeSpecified(
        f"field {codelet}.{spec.name} is a {spec.kind.value} without a size.",
        source=user_source(),
        hint="call graph.set_field_size(vertex['field'], n) before connecting its elements",
    )

"""Vertex tables: all vertices of one codelet in one compute set, as columns."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tremula.base.errors import (
    GraphConnectionError,
    NoSizeSpecified,
    OverflowInField,
    TypeMismatch,
    UnknownField,
    suggest,
)
from tremula.base.source import Source
from tremula.codelets.spec import Codelet, FieldKind, FieldSpec
from tremula.poplar.runs import Runs, concat_runs, expand, single_run
from tremula.poplar.tensor import Tensor

_LISTS = (FieldKind.VECTOR_LIST, FieldKind.SCALAR_LIST)
_RANK_OF_KIND = {FieldKind.SCALAR: 0, FieldKind.VECTOR: 1}


@dataclass(frozen=True, slots=True)
class EdgeColumn:
    """One edge field of all rows. Row i has sub-vectors sub_start[i] … sub_start[i+1]; sub-vector j
    has runs run_start[j] … run_start[j+1]. Fields that are no lists have one sub-vector per row."""

    sub_start: np.ndarray  # int64[n_rows + 1]
    run_start: np.ndarray  # int64[n_subs + 1]
    runs: Runs

    @property
    def n_rows(self) -> int:
        return len(self.sub_start) - 1

    @property
    def is_one_run_each(self) -> bool:
        return len(self.runs.start) == len(self.run_start) - 1

    def sub_lengths(self) -> np.ndarray:
        """int64[n_subs]: elements per sub-vector."""
        if self.is_one_run_each:
            return self.runs.count
        return np.add.reduceat(np.append(self.runs.count, 0), self.run_start[:-1]) * (
            np.diff(self.run_start) > 0
        )

    def row_lengths(self) -> np.ndarray:
        """int64[n_rows]: elements per row."""
        ends = np.concatenate(([0], np.cumsum(self.sub_lengths())))
        return ends[self.sub_start[1:]] - ends[self.sub_start[:-1]]

    def row_of_run(self) -> np.ndarray:
        """int64[n_runs]: the row each run belongs to."""
        row_of_sub = np.repeat(np.arange(self.n_rows), np.diff(self.sub_start))
        if self.is_one_run_each:
            return row_of_sub
        return np.repeat(row_of_sub, np.diff(self.run_start))

    def take(self, rows: np.ndarray) -> "EdgeColumn":
        """The rows in another order."""
        sub_start, sub = _take_csr(self.sub_start, rows)
        run_start, run = _take_csr(self.run_start, sub)
        return EdgeColumn(sub_start, run_start, self.runs.take(run))


@dataclass(frozen=True, slots=True)
class StateColumn:
    """One state field of all rows; `start` is the CSR of state vectors, else None."""

    start: np.ndarray | None
    value: np.ndarray

    def take(self, rows: np.ndarray) -> "StateColumn":
        if self.start is None:
            return StateColumn(None, self.value[rows])
        start, picked = _take_csr(self.start, rows)
        return StateColumn(start, self.value[picked])


@dataclass(frozen=True, slots=True)
class FrozenTable:
    """A vertex table as the compiler sees it: rows sorted by tile, nothing missing."""

    codelet: Codelet
    tile: np.ndarray  # int32[n]
    edges: dict[str, EdgeColumn]
    states: dict[str, StateColumn]
    estimate_cycles: np.ndarray | None  # int64[n], -1 where the user gave none
    estimate_flops: np.ndarray | None
    source_id: np.ndarray  # int32[n] into `sources`
    sources: tuple[Source, ...]

    @property
    def n_rows(self) -> int:
        return len(self.tile)


def _take_csr(start: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    counts = np.diff(start)[rows]
    owner, within = expand(counts)
    return np.concatenate(([0], np.cumsum(counts))), start[rows][owner] + within


class _EdgeLog:
    """Connections of one edge field, in the order they were made."""

    def __init__(self, codelet: str, spec: FieldSpec):
        self.codelet, self.spec, self.type = codelet, spec, spec.type
        self.row, self.sub, self.call = array("q"), array("q"), array("q")
        self.start, self.count, self.stride = array("q"), array("q"), array("q")
        self.n_calls = 0
        self.blocks: list[tuple[int, EdgeColumn]] = []
        self.declared_sizes: dict[int, int] = {}

    def connect(self, row: int, value: Tensor, sub: int = 0) -> None:
        """Connect one tensor to a row (to one sub-vector of it, for lists)."""
        shape = value.shape
        n_dims = len(shape)
        if value.type is not self.type:
            self._check_type(value)
        self.n_calls += 1
        if value.pieces is None and n_dims <= 1:
            self.row.append(row)
            self.sub.append(sub)
            self.call.append(self.n_calls)
            self.start.append(value.offset)
            if n_dims:
                self.count.append(shape[0])
                self.stride.append(value.strides[0] if shape[0] > 1 else 1)
            else:
                self.count.append(1)
                self.stride.append(1)
            return
        runs = value.runs() if value.n_elems else single_run(0, 0, 1)
        n = len(runs.start)
        for column, items in (
            (self.row, [row] * n),
            (self.sub, [sub] * n),
            (self.call, [self.n_calls] * n),
            (self.start, runs.start.tolist()),
            (self.count, runs.count.tolist()),
            (self.stride, runs.stride.tolist()),
        ):
            column.extend(items)

    def connect_value(self, row: int, value: Any) -> None:
        """Check the rank a field wants, then connect."""
        kind = self.spec.kind
        if kind in _LISTS:
            parts = value if isinstance(value, Sequence) else list(value)
            wanted = 1 if kind is FieldKind.VECTOR_LIST else 0
            self.declared_sizes[row] = len(parts)
            for sub, part in enumerate(parts):
                self.connect(row, self._checked_rank(part, wanted), sub)
        else:
            self.connect(row, self._checked_rank(value, _RANK_OF_KIND[kind]))

    def _checked_rank(self, value: Tensor, rank: int) -> Tensor:
        if not isinstance(value, Tensor):
            raise GraphConnectionError(
                f"field {self.codelet}.{self.spec.name} got {type(value).__name__}, "
                "expected a Tensor.",
                mend="connect a Tensor; values are for state fields",
            )
        if value.rank == rank or (rank == 0 and value.n_elems == 1):
            return value
        raise GraphConnectionError(
            f"field {self.codelet}.{self.spec.name} is a {self.spec.kind.value} and takes a tensor of "
            f"rank {rank}, got shape {list(value.shape)}.",
            mend="flatten() the tensor" if rank else "index one element",
        )

    def _check_type(self, value: Tensor) -> None:
        if value.type != self.type:
            raise TypeMismatch(
                f"field {self.codelet}.{self.spec.name} has type {self.type}, got a tensor of "
                f"{value.type}.",
                mend=f"connect a tensor of {self.type}, or reinterpret() it",
            )

    def freeze(self, n_rows: int, error_at: "_RowError") -> EdgeColumn:
        """All connections as one column, or the error of the first bad row."""
        if len(self.blocks) == 1 and not len(self.row) and self.blocks[0][1].n_rows == n_rows:
            return self.blocks[0][1]
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
        sub_start = np.concatenate(([0], np.cumsum(n_subs)))
        return EdgeColumn(sub_start, np.append(first, len(row)), runs)

    def _gathered(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, Runs]:
        own = [np.array(c, np.int64) for c in (self.row, self.sub, self.call)]
        logs = [np.array(c, np.int64) for c in (self.start, self.count, self.stride)]
        rows, subs, calls, runs = [own[0]], [own[1]], [own[2]], [Runs(*logs)]
        for first_row, block in self.blocks:
            within_sub = expand(np.diff(block.sub_start))[1]
            per_sub = np.diff(block.run_start)
            rows.append(block.row_of_run() + first_row)
            subs.append(np.repeat(within_sub, per_sub))
            calls.append(np.full(len(block.runs.start), -1 - len(calls), np.int64))
            runs.append(block.runs)
        return np.concatenate(rows), np.concatenate(subs), np.concatenate(calls), concat_runs(runs)

    def _check_complete(
        self, n_subs: np.ndarray, sub: np.ndarray, row: np.ndarray, error_at: "_RowError"
    ) -> None:
        if self.spec.kind not in _LISTS:
            empty = np.flatnonzero(n_subs == 0)
            if len(empty):
                raise error_at(int(empty[0]), self.spec, "is not connected", "connect it")
            return
        for bad in np.flatnonzero(n_subs == 0).tolist():
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


class _RowError:
    """Makes the error of a row: names the vertex, its field and the user's line."""

    def __init__(self, builder: "VertexTableBuilder"):
        self.builder = builder

    def __call__(self, row: int, spec: FieldSpec, what: str, mend: str) -> GraphConnectionError:
        name = self.builder.codelet.spec.name
        return GraphConnectionError(
            f"field {name}.{spec.name} of vertex {row} in compute set "
            f"{self.builder.compute_set_name!r} {what}.",
            source=self.builder.source_of(row),
            mend=mend,
        )


class VertexTableBuilder:
    """The growing table of one codelet in one compute set."""

    def __init__(self, codelet: Codelet, compute_set_name: str):
        self.codelet = codelet
        self.compute_set_name = compute_set_name
        self.n_rows = 0
        self.tile = array("q")
        self.source_id = array("q")
        self.sources: dict[Source, int] = {}
        name = codelet.spec.name
        self.edges = {f.name: _EdgeLog(name, f) for f in codelet.spec.fields if f.is_edge}
        self.states = {f.name: f for f in codelet.spec.fields if not f.is_edge}
        self.state_values: dict[str, dict[int, Any]] = {name: {} for name in self.states}
        self.state_blocks: dict[str, list[tuple[int, int, Any]]] = {n: [] for n in self.states}
        self.estimates: dict[int, tuple[int, int]] = {}

    def add_row(self, tile: int, source: Source) -> int:
        row = self.n_rows
        self.n_rows = row + 1
        self.tile.append(tile)
        source_id = self.sources.get(source)
        if source_id is None:
            source_id = self.sources[source] = len(self.sources)
        self.source_id.append(source_id)
        return row

    def add_rows(self, tiles: np.ndarray, source: Source) -> int:
        first = self.n_rows
        self.n_rows += len(tiles)
        self.tile.frombytes(tiles.astype(np.int64).tobytes())
        source_id = self.sources.setdefault(source, len(self.sources))
        self.source_id.frombytes(np.full(len(tiles), source_id, np.int64).tobytes())
        return first

    def source_of(self, row: int) -> Source:
        return list(self.sources)[self.source_id[row]]

    def connect(self, row: int, name: str, value: Any) -> None:
        edge = self.edges.get(name)
        if edge is None:
            self.set_state(row, name, value)
        elif edge.spec.kind is FieldKind.VECTOR and len(value.shape) == 1:
            edge.connect(row, value)
        else:
            edge.connect_value(row, value)

    def set_state(self, row: int, name: str, value: Any) -> None:
        spec = self.field(name)
        if isinstance(value, Tensor):
            raise GraphConnectionError(
                f"field {self.codelet.spec.name}.{name} is state, got a Tensor.",
                mend="give a value: state is set with set_initial_value, not connected",
            )
        self.state_values[name][row] = checked_state(self.codelet.spec.name, spec, value)

    def field(self, name: str) -> FieldSpec:
        for spec in self.codelet.spec.fields:
            if spec.name == name:
                return spec
        raise UnknownField(
            f"vertex {self.codelet.spec.name!r} has no field {name!r}.",
            mend=suggest(name, [f.name for f in self.codelet.spec.fields]),
        )

    def freeze(self) -> FrozenTable:
        """Columns sorted by tile; raises on the first unconnected or doubly connected field."""
        error_at = _RowError(self)
        tile = np.array(self.tile, np.int64).astype(np.int32)
        edges = {name: log.freeze(self.n_rows, error_at) for name, log in self.edges.items()}
        states = {name: self._frozen_state(spec) for name, spec in self.states.items()}
        cycles, flops = self._frozen_estimates()
        source_id = np.array(self.source_id, np.int64).astype(np.int32)
        if not bool((tile[1:] >= tile[:-1]).all()):
            order = np.argsort(tile, kind="stable")
            tile, source_id = tile[order], source_id[order]
            edges = {name: column.take(order) for name, column in edges.items()}
            states = {name: column.take(order) for name, column in states.items()}
            cycles = cycles[order] if cycles is not None else None
            flops = flops[order] if flops is not None else None
        return FrozenTable(
            self.codelet, tile, edges, states, cycles, flops, source_id, tuple(self.sources)
        )

    def _frozen_estimates(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        if not self.estimates:
            return None, None
        cycles, flops = np.full(self.n_rows, -1, np.int64), np.zeros(self.n_rows, np.int64)
        for row, (row_cycles, row_flops) in self.estimates.items():
            cycles[row], flops[row] = row_cycles, row_flops
        return cycles, flops

    def _frozen_state(self, spec: FieldSpec) -> StateColumn:
        single, blocks = self.state_values[spec.name], self.state_blocks[spec.name]
        if spec.kind is FieldKind.STATE:
            value = np.zeros(self.n_rows, spec.type.dtype)
            for first, n, values in blocks:
                value[first : first + n] = values
            if single:
                rows = np.fromiter(single.keys(), np.int64, len(single))
                value[rows] = np.array(list(single.values()), spec.type.dtype)
            return StateColumn(None, value)
        parts: list[np.ndarray] = [np.empty(0, spec.type.dtype)] * self.n_rows
        for first, n, values in blocks:
            parts[first : first + n] = list(values)[:n]
        for row, values in single.items():
            parts[row] = values
        lengths = np.array([len(p) for p in parts], np.int64)
        joined = np.concatenate(parts) if parts else np.empty(0, spec.type.dtype)
        return StateColumn(np.concatenate(([0], np.cumsum(lengths))), joined)


def checked_state(codelet: str, spec: FieldSpec, value: Any) -> Any:
    """A state value in its field's type, or an error if it does not fit."""
    array_value = np.asarray(value)
    wanted_dims = 0 if spec.kind is FieldKind.STATE else 1
    if array_value.ndim != wanted_dims:
        raise GraphConnectionError(
            f"field {codelet}.{spec.name} is a {spec.kind.value}, got a value of shape "
            f"{list(array_value.shape)}.",
            mend="give a scalar" if wanted_dims == 0 else "give a list or 1-D array",
        )
    dtype = spec.type.dtype
    if dtype.kind in "iu" and array_value.size:
        limits = np.iinfo(dtype)
        low, high = array_value.min(), array_value.max()
        if low < limits.min or high > limits.max:
            raise OverflowInField(
                f"value {low if low < limits.min else high} does not fit field {codelet}.{spec.name} "
                f"of type {spec.type}.",
                mend=f"use {limits.min} to {limits.max}, or a wider type",
            )
    return array_value.astype(dtype)


def require_size(spec: FieldSpec, codelet: str) -> NoSizeSpecified:
    return NoSizeSpecified(
        f"field {codelet}.{spec.name} is a {spec.kind.value} without a size.",
        mend="call graph.set_field_size(vertex['field'], n) before connecting its elements",
    )

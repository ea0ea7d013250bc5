"""The growing vertex table of one codelet in one compute set."""

from array import array
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import numpy as np

from tremula.base.errors import (
    GraphConnectionError,
    OverflowInField,
    TensorCreationError,
    UnknownField,
    suggest,
)
from tremula.base.source import Source, user_source
from tremula.codelets.spec import Codelet, Direction, FieldKind, FieldSpec
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Ragged
from tremula.poplar.vertices.columns import FrozenTable, StateColumn
from tremula.poplar.vertices.edge_log import EdgeLog


class StateLog:
    """Values of one state field, in the order they were set; rows without one are zero."""

    def __init__(self, spec: FieldSpec):
        self.spec = spec
        code = {"f": "d", "u": "Q", "b": "Q"}.get(spec.type.dtype.kind, "q")
        self.rows, self.values = array("q"), array(code)  # of scalars
        self.vectors: dict[int, np.ndarray] = {}
        self.blocks: list[tuple[int, int, np.ndarray | Ragged]] = []  # first row, rows, values

    def forget(self, row: int) -> None:
        """Drop the value of the last row."""
        while len(self.rows) and self.rows[-1] == row:
            self.rows.pop()
            self.values.pop()
        self.vectors.pop(row, None)

    def freeze(self, n_rows: int) -> StateColumn:
        dtype = self.spec.type.dtype
        if self.spec.kind is FieldKind.STATE:
            value = np.zeros(n_rows, dtype)
            for first, n, values in self.blocks:
                value[first : first + n] = values
            value[np.array(self.rows, np.int64)] = np.array(self.values).astype(dtype)
            return StateColumn(None, value)
        only = self.blocks[0] if len(self.blocks) == 1 and not self.vectors else None
        if only is not None and only[1] == n_rows and isinstance(only[2], Ragged):
            return StateColumn(only[2].start, only[2].value)
        parts: list[np.ndarray] = [np.empty(0, dtype)] * n_rows
        for first, n, values in self.blocks:
            rows = values.rows() if isinstance(values, Ragged) else list(values)
            parts[first : first + n] = rows[:n]
        for row, values in self.vectors.items():
            parts[row] = values
        lengths = np.array([len(p) for p in parts], np.int64)
        joined = np.concatenate(parts) if parts else np.empty(0, dtype)
        return StateColumn(np.concatenate(([0], np.cumsum(lengths))), joined)


class VertexTableBuilder:
    """The growing table of one codelet in one compute set."""

    def __init__(self, codelet: Codelet, compute_set_name: str):
        self.codelet = codelet
        self.compute_set_name = compute_set_name
        self.n_rows = 0
        self.tile = array("q")
        self.source_id = array("q")
        self.sources: dict[Source, int] = {}
        self._last_line, self._last_source = -1, -1
        self._last_code: CodeType | None = None
        fields = codelet.spec.fields
        self.edges = {f.name: EdgeLog(codelet.spec.name, f) for f in fields if f.is_edge}
        self.states = {f.name: StateLog(f) for f in fields if not f.is_edge}
        self.constants: dict[int, list[Tensor]] = {}  # of rows: numbers given for Inputs
        self.connectors = {name: log.connector() for name, log in self.edges.items()}
        self.connectors |= {name: self._state_setter(log.spec) for name, log in self.states.items()}
        self.estimates: dict[int, tuple[int, int]] = {}

    def add_row(self, tile: int, caller: FrameType) -> int:
        """Append a vertex. Its line is cached: a loop adds many from the same one."""
        row = self.n_rows
        self.n_rows = row + 1
        self.tile.append(tile)
        line = caller.f_lineno
        if line != self._last_line or caller.f_code is not self._last_code:
            source = user_source()
            is_users = source.file == caller.f_code.co_filename  # not Tremula's own library
            self._last_line, self._last_code = line, caller.f_code if is_users else None
            self._last_source = self.sources.setdefault(source, len(self.sources))
        self.source_id.append(self._last_source)
        return row

    def forget_last_row(self) -> None:
        """Undo `add_row` and what was connected to the row since."""
        self.n_rows -= 1
        self.tile.pop()
        self.source_id.pop()
        self.constants.pop(self.n_rows, None)
        for log in (*self.edges.values(), *self.states.values()):
            log.forget(self.n_rows)

    def add_rows(self, tiles: np.ndarray, source: Source) -> int:
        first = self.n_rows
        self.n_rows += len(tiles)
        self.tile.frombytes(tiles.astype(np.int64).tobytes())
        source_id = self.sources.setdefault(source, len(self.sources))
        self.source_id.frombytes(np.full(len(tiles), source_id, np.int64).tobytes())
        return first

    def source_of(self, row: int) -> Source:
        return list(self.sources)[self.source_id[row]]

    def connect(self, row: int, name: str, value: object) -> None:
        """Connect an edge, or set state."""
        connector = self.connectors.get(name)
        if connector is None:
            raise self.unknown_field(name)
        connector(row, value)

    def _state_setter(self, spec: FieldSpec) -> Callable[[int, Any], None]:
        """The function that sets one state field of a row."""
        log, codelet = self.states[spec.name], self.codelet.spec.name
        if spec.kind is FieldKind.STATE and spec.type.dtype.kind == "f":

            def set_float(row: int, value: float) -> None:
                if value.__class__ is not float and value.__class__ is not int:
                    value = float(checked_state(codelet, spec, value))
                log.values.append(value)
                log.rows.append(row)

            return set_float

        def set_any(row: int, value: object) -> None:
            checked = checked_state(codelet, spec, value)
            if spec.kind is FieldKind.STATE:
                log.values.append(checked.item())
                log.rows.append(row)
            else:
                log.vectors[row] = checked

        return set_any

    def _row_error(self, row: int, spec: FieldSpec, what: str, hint: str) -> GraphConnectionError:
        return GraphConnectionError(
            f"field {self.codelet.spec.name}.{spec.name} of vertex {row} in compute set "
            f"{self.compute_set_name!r} {what}.",
            source=self.source_of(row),
            hint=hint,
        )

    def field(self, name: str) -> FieldSpec:
        for spec in self.codelet.spec.fields:
            if spec.name == name:
                return spec
        raise self.unknown_field(name)

    def unknown_field(self, name: str) -> UnknownField:
        return UnknownField(
            f"vertex {self.codelet.spec.name!r} has no field {name!r}.",
            source=user_source(),
            hint=suggest(name, [f.name for f in self.codelet.spec.fields]),
        )

    def takes_constant(self, name: str, value: object, *, is_element: bool = False) -> bool:
        """Is it a number (or numbers) for an Input, which become a constant?

        `is_element`: of one element of a list field.
        """
        edge = self.edges.get(name)
        if edge is None or edge.spec.direction is not Direction.INPUT:
            return False
        kind = edge.spec.kind
        is_scalar = kind is (FieldKind.SCALAR_LIST if is_element else FieldKind.SCALAR)
        if isinstance(value, int | float | np.number | np.bool_):
            return is_scalar
        is_vector = kind is (FieldKind.VECTOR_LIST if is_element else FieldKind.VECTOR)
        if isinstance(value, list | tuple):
            return is_vector and all(isinstance(v, int | float | np.number) for v in value)
        wanted_rank = 0 if is_scalar else 1
        return isinstance(value, np.ndarray) and (
            (is_scalar or is_vector) and value.ndim == wanted_rank
        )

    def bulk_state(self, name: str, value: object, n_rows: int) -> np.ndarray | Ragged:
        """The values of a state field for many vertices: one for all, or one for each."""
        spec = self.field(name)
        if isinstance(value, Ragged) and spec.kind is FieldKind.STATE_VECTOR:
            return checked_ragged_state(self.codelet.spec.name, spec, value, n_rows)
        values = np.asarray(value)
        per_row = values.ndim - (0 if spec.kind.value == "state" else 1)
        if per_row not in (0, 1) or (per_row == 1 and len(values) != n_rows):
            raise TensorCreationError(
                f"state {self.codelet.spec.name}.{name} of {n_rows} vertices got shape "
                f"{list(values.shape)}.",
                source=user_source(),
                hint="give one value for all, or one per vertex",
            )
        flat = values.reshape(-1)
        is_single = spec.kind is FieldKind.STATE
        for part in (
            (flat.min(), flat.max()) if is_single and flat.size else (flat,) * (not is_single)
        ):
            checked_state(self.codelet.spec.name, spec, part)
        shape = (n_rows, *values.shape[per_row:])
        return np.broadcast_to(values.astype(spec.type.dtype), shape)

    def freeze(self) -> FrozenTable:
        """Columns sorted by tile; raises on the first unconnected or doubly connected field."""
        error_at = self._row_error
        tile = np.array(self.tile, np.int64).astype(np.int32)
        edges = {name: log.freeze(self.n_rows, error_at) for name, log in self.edges.items()}
        states = {name: log.freeze(self.n_rows) for name, log in self.states.items()}
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

    @staticmethod
    def thawed(frozen: FrozenTable, compute_set_name: str) -> "VertexTableBuilder":
        """A table that can grow, with the rows of a frozen one."""
        table = VertexTableBuilder(frozen.codelet, compute_set_name)
        n_rows = table.n_rows = frozen.n_rows
        table.tile.frombytes(frozen.tile.astype(np.int64).tobytes())
        table.source_id.frombytes(frozen.source_id.astype(np.int64).tobytes())
        table.sources = {source: number for number, source in enumerate(frozen.sources)}
        for name, edge in frozen.edges.items():
            table.edges[name].blocks.append((0, edge))
        for name, state in frozen.states.items():
            start, values = state.start, state.value
            rows = values if start is None else np.split(values, start[1:-1])
            table.states[name].blocks.append((0, n_rows, rows))  # pyright: ignore[reportArgumentType]
        if frozen.estimate_cycles is not None and frozen.estimate_flops is not None:
            pairs = zip(
                frozen.estimate_cycles.tolist(), frozen.estimate_flops.tolist(), strict=True
            )
            table.estimates = {row: pair for row, pair in enumerate(pairs) if pair[0] >= 0}
        return table

    def _frozen_estimates(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        if not self.estimates:
            return None, None
        cycles, flops = np.full(self.n_rows, -1, np.int64), np.zeros(self.n_rows, np.int64)
        for row, (row_cycles, row_flops) in self.estimates.items():
            cycles[row], flops[row] = row_cycles, row_flops
        return cycles, flops


def checked_ragged_state(codelet: str, spec: FieldSpec, value: Ragged, n_rows: int) -> Ragged:
    """State vectors of many vertices, one for each and in the field's type."""
    start = np.asarray(value.start, np.int64)
    if len(start) != n_rows + 1 or start[0] != 0 or start[-1] != len(value.value):
        raise TensorCreationError(
            f"state {codelet}.{spec.name} of {n_rows} vertices got {len(start) - 1} vectors of "
            f"{len(value.value)} values in all.",
            source=user_source(),
            hint="start ascends from 0 to the number of values, with one entry more than there "
            "are vertices",
        )
    if len(value.value):
        for limit in (value.value.min(), value.value.max()):
            checked_state(codelet, spec, np.full(1, limit))
    return Ragged(np.asarray(value.value).astype(spec.type.dtype, copy=False), start)


def checked_state(codelet: str, spec: FieldSpec, value: object) -> np.ndarray:
    """A state value in its field's type, or an error if it does not fit."""
    if isinstance(value, Tensor):
        raise GraphConnectionError(
            f"field {codelet}.{spec.name} is state, got a Tensor.",
            source=user_source(),
            hint="give a value: state is set with set_initial_value, not connected",
        )
    array_value = np.asarray(value)
    if array_value.dtype.kind not in "biufV":  # V: floats of other libraries
        raise GraphConnectionError(
            f"field {codelet}.{spec.name} of type {spec.type} got {value!r}, expected numbers.",
            source=user_source(),
            hint="set state to a number, or a list of numbers",
        )
    wanted_dims = 0 if spec.kind is FieldKind.STATE else 1
    if array_value.ndim != wanted_dims:
        raise GraphConnectionError(
            f"field {codelet}.{spec.name} is a {spec.kind.value}, got a value of shape "
            f"{list(array_value.shape)}.",
            source=user_source(),
            hint="give a scalar" if wanted_dims == 0 else "give a list or 1-D array",
        )
    dtype = spec.type.dtype
    if dtype.kind in "iu" and array_value.size:
        limits = np.iinfo(dtype)
        low, high = array_value.min(), array_value.max()
        if low < limits.min or high > limits.max:
            raise OverflowInField(
                f"value {low if low < limits.min else high} does not fit field "
                f"{codelet}.{spec.name} of type {spec.type}.",
                source=user_source(),
                hint=f"use {limits.min} to {limits.max}, or a wider type",
            )
    return array_value.astype(dtype)

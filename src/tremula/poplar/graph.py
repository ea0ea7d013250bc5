"""Graph: owns variables, tile maps, compute sets, streams and functions. It never runs anything."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tremula.base.errors import (
    GraphConnectionError,
    GraphReplicationError,
    InvalidTileMapping,
    OverflowInField,
    TensorCreationError,
    TensorMetadataError,
    TypeMismatch,
    UnknownVertexType,
    suggest,
)
from tremula.base.source import user_source
from tremula.base.types import QUARTER, QUARTER_METADATA, UNSIGNED_INT, Type, as_type
from tremula.codelets import codelet_of
from tremula.codelets.spec import Codelet, FieldKind
from tremula.hardware import Chip
from tremula.poplar.graph_host import HostSide
from tremula.poplar.graph_mapping import MappingSide
from tremula.poplar.streams import HostHandles
from tremula.poplar.target import Device, Target
from tremula.poplar.tensors.tensor import Tensor, variable_tensor
from tremula.poplar.tensors.tile_map import TileMapLog
from tremula.poplar.tensors.variables import VariableTable
from tremula.poplar.vertices.bulk import bulk_edge
from tremula.poplar.vertices.compute_set import ComputeSet, FieldRef, VertexRef
from tremula.poplar.vertices.table import VertexTableBuilder, checked_state

GraphLike = Target | Device
# (v, chip) -> cycles, or (cycles, flops), of all vertices of a codelet at once.
PerfEstimator = Callable[[Any, Chip], object]


class GraphState:
    """What a graph and all its virtual graphs share."""

    def __init__(self) -> None:
        self.variables = VariableTable()
        self.tile_map = TileMapLog()
        self.initial_parts: list[tuple[Tensor, np.ndarray]] = []
        self.compute_sets: list[ComputeSet] = []
        self.codelets: dict[str, Codelet] = {}
        self.handles = HostHandles()
        self.perf_estimators: dict[str, PerfEstimator] = {}
        self.replica_index: int | None = None  # variable id of the replication index constant


class Graph(MappingSide, HostSide):
    """A tile program under construction.

    >>> from tremula import Graph, IPUModel, FLOAT
    >>> graph = Graph(IPUModel("bow").create_device())
    >>> x = graph.add_variable(FLOAT, [4, 5], "x", mapping="linear")
    >>> x[1:3].shape
    (2, 5)
    """

    def __init__(self, target: GraphLike, replication_factor: int = 1):
        full = target.target if isinstance(target, Device) else target
        if replication_factor < 1 or full.n_ipus % replication_factor:
            raise GraphReplicationError(
                f"{full.n_ipus} IPUs cannot hold {replication_factor} replicas.",
                source=user_source(),
                hint="use a factor that divides the number of IPUs",
            )
        self.replication_factor = replication_factor
        self.target = full.with_replicas(replication_factor)
        self.state = GraphState()
        self._tile_ids: np.ndarray | None = None  # virtual graphs: own tile -> top-level tile
        self._top: Graph | None = None

    # -- variables ---------------------------------------------------------------------------------

    def add_variable(
        self,
        type: Type | str,
        shape: Sequence[int],
        name: str = "",
        *,
        mapping: "str | int | None" = None,
        metadata: Tensor | None = None,
    ) -> Tensor:
        """A new variable, row-major. `mapping`: None, "linear", or the tile that holds it all."""
        tensor = self._add(as_type(type), shape, name, metadata, is_constant=False)
        self._map_new(tensor, name, mapping)
        return tensor

    def _map_new(self, tensor: Tensor, name: str, mapping: "str | int | None") -> None:
        if mapping == "linear":
            self.map_linearly(tensor)
        elif isinstance(mapping, int | np.integer):
            self.set_tile_mapping(tensor, mapping)
        elif mapping is not None:
            raise InvalidTileMapping(
                f"mapping {mapping!r} of variable {name!r} is unknown.",
                source=user_source(),
                hint="use 'linear', a tile number, or None and set_tile_mapping",
            )

    def add_constant(
        self,
        type: Type | str,
        shape: Sequence[int],
        value: object,
        name: str = "",
        *,
        mapping: "str | int | None" = 0,
        metadata: Tensor | None = None,
    ) -> Tensor:
        """A constant; one scalar fills the shape. Mapped to tile 0 unless told otherwise."""
        type = as_type(type)
        tensor = self._add(type, shape, name or "constant", metadata, is_constant=True)
        self._set_tensor_values(tensor, value)
        self._map_new(tensor, name or "constant", mapping)
        return tensor

    def _add(
        self,
        type: Type,
        shape: Sequence[int],
        name: str,
        metadata: Tensor | None,
        is_constant: bool,
    ) -> Tensor:
        is_shape = isinstance(shape, Iterable)
        shape = tuple(int(s) for s in shape) if is_shape else (shape,)
        if not is_shape or any(s < 0 for s in shape):
            raise TensorCreationError(
                f"variable {name!r} cannot have shape {list(shape) if is_shape else shape[0]}.",
                source=user_source(),
                hint="use a list of sizes of 0 or more",
            )
        self._check_metadata(type, name, metadata)
        variables = self.state.variables
        variable = variables.add(name, type, shape, user_source(), is_constant)
        if metadata is not None:
            variables.metadata_of[variable] = metadata.variable_ids()[0]
        return variable_tensor(variables, variable)

    def _check_metadata(self, type: Type, name: str, metadata: Tensor | None) -> None:
        is_scalar = metadata is None or metadata.n_elems == 1
        is_metadata = metadata is None or metadata.type == QUARTER_METADATA
        if (type == QUARTER) == (metadata is not None) and is_scalar and is_metadata:
            return
        raise TensorMetadataError(
            f"variable {name!r} of type {type} "
            + ("needs a metadata tensor." if type == QUARTER else "cannot have metadata."),
            source=user_source(),
            hint="give metadata=, a QUARTER_METADATA scalar, to QUARTER variables only",
        )

    def clone(self, tensor: Tensor, name: str = "", *, type: Type | str | None = None) -> Tensor:
        """A new variable with the same shape and the same tile mapping, element by element."""
        type = tensor.type if type is None else as_type(type)
        copy = self._add(type, tensor.shape, name or "clone", tensor.metadata, is_constant=False)
        mapping = self.top.get_tile_mapping(tensor, require_complete=False)
        self.top.set_tile_mapping(copy, mapping)
        return copy

    def clone_n(self, tensor: Tensor, n: int, name: str = "") -> Tensor:
        """`n` clones as one tensor with a new outer dimension."""
        copy = self._add(tensor.type, (n, *tensor.shape), name or "clone", tensor.metadata, False)
        mapping = self.top.get_tile_mapping(tensor, require_complete=False)
        for i in range(n):
            self.top.set_tile_mapping(copy[i], mapping)
        return copy

    def set_initial_value(self, where: "Tensor | FieldRef", value: object) -> None:
        """Contents of a variable when the engine is loaded, or of a vertex's state field."""
        if isinstance(where, FieldRef):
            where.vertex.table.connect(where.vertex.row, where.name, value)
        else:
            self._set_tensor_values(where, value)

    def _set_tensor_values(self, tensor: Tensor, value: object) -> None:
        values = np.asarray(value)
        if (
            values.dtype.kind == "f"
            and tensor.type.dtype.kind == "u"
            and not tensor.type.is_floating
        ):
            values = np.asarray(values, np.int64)
        if values.size not in (1, tensor.n_elems):
            raise TensorCreationError(
                f"{values.size} values do not fill a tensor of shape {list(tensor.shape)}.",
                source=user_source(),
                hint=f"give one value or {tensor.n_elems}",
            )
        _check_values(tensor.type, values)
        flat = np.broadcast_to(values.ravel(), (tensor.n_elems,)).astype(tensor.type.dtype)
        self.state.initial_parts.append((tensor, flat))

    def add_replication_index_constant(self, name: str = "replicationIndex") -> Tensor:
        """A constant with the index of the replica that reads it."""
        if self.state.replica_index is None:
            tensor = self.add_constant(UNSIGNED_INT, [], 0, name)
            self.state.replica_index = tensor.variable_ids()[0]
        return variable_tensor(self.state.variables, self.state.replica_index)

    # -- codelets and vertices ---------------------------------------------------------------------

    def add_codelets(
        self, what: str | Path | type | Iterable[str | Path | type], flags: str = ""
    ) -> list[str]:
        """Add C++ codelets (a path, several, or source text) or Vertex classes; their names."""
        given = [what] if isinstance(what, str | Path | type) else list(what)
        classes = [w for w in given if isinstance(w, type)]
        added: dict[str, Codelet] = {c.spec.name: c for c in map(codelet_of, classes)}
        files = [w for w in given if not isinstance(w, type)]
        if files:
            from tremula.codelets.cpp import load_cpp_codelets

            added |= load_cpp_codelets(files, flags)
        self.state.codelets.update(added)
        return sorted(added)

    def has_codelet(self, name: str) -> bool:
        return name in self.state.codelets

    def add_compute_set(self, name: str = "") -> ComputeSet:
        compute_set = ComputeSet(name or f"cs{len(self.state.compute_sets)}", user_source())
        self.state.compute_sets.append(compute_set)
        return compute_set

    def add_vertex(
        self,
        compute_set: ComputeSet,
        codelet: "str | type",
        fields: Mapping[str, Any] | None = None,
        *,
        tile: int = -1,
    ) -> VertexRef:
        """Add one vertex. `fields` connects edges and sets state; `tile` may be set later."""
        table = compute_set.tables.get(codelet)
        if table is None:
            table = self._table(compute_set, codelet)
        if tile != -1:
            tile = self._checked_tile(tile)
        row = table.add_row(tile, sys._getframe(1))
        if fields is not None:
            connectors = table.connectors
            for name, value in fields.items():
                connector = connectors.get(name)
                if connector is None:
                    raise table.unknown_field(name)
                connector(row, value)
        return VertexRef(table, row)

    def add_vertices(
        self,
        compute_set: ComputeSet,
        codelet: "str | type",
        fields: Mapping[str, Any],
        *,
        tiles: int | Sequence[int] | np.ndarray,
        n: int | None = None,
    ) -> None:
        """Add many vertices at once: vertex i gets element, row or matrix i of each field's tensor.

        Edges take a Tensor with a leading dimension of n, or Slices; state takes one value or n.
        """
        tiles = np.asarray(tiles, np.int64)
        tiles = np.full(n, tiles, np.int64) if tiles.ndim == 0 and n is not None else tiles
        if tiles.ndim != 1 or len(tiles) != (len(tiles) if n is None else n):
            raise InvalidTileMapping(
                f"add_vertices got tiles of shape {list(tiles.shape)} for "
                f"{'an unknown number of' if n is None else n} vertices.",
                source=user_source(),
                hint="give one tile per vertex, or one tile and n=",
            )
        self._check_tiles(tiles)
        table = self._table(compute_set, codelet)
        name, n_rows = table.codelet.spec.name, len(tiles)
        columns = {
            field: bulk_edge(name, table.edges[field].spec, value, n_rows)
            for field, value in fields.items()
            if field in table.edges
        }
        states = {
            f: self._bulk_state(table, f, v, n_rows) for f, v in fields.items() if f not in columns
        }
        first = table.add_rows(self._to_top_tiles(tiles), user_source())
        for field, column in columns.items():
            table.edges[field].blocks.append((first, column))
        for field, values in states.items():
            table.states[field].blocks.append((first, n_rows, values))

    def _bulk_state(
        self, table: VertexTableBuilder, name: str, value: object, n_rows: int
    ) -> np.ndarray:
        spec = table.field(name)
        values = np.asarray(value)
        per_row = values.ndim - (0 if spec.kind.value == "state" else 1)
        if per_row not in (0, 1) or (per_row == 1 and len(values) != n_rows):
            raise TensorCreationError(
                f"state {table.codelet.spec.name}.{name} of {n_rows} vertices got shape "
                f"{list(values.shape)}.",
                source=user_source(),
                hint="give one value for all, or one per vertex",
            )
        flat = values.reshape(-1)
        is_single = spec.kind is FieldKind.STATE
        for part in (
            (flat.min(), flat.max()) if is_single and flat.size else (flat,) * (not is_single)
        ):
            checked_state(table.codelet.spec.name, spec, part)
        shape = (n_rows, *values.shape[per_row:])
        return np.broadcast_to(values.astype(spec.type.dtype), shape)

    def _table(self, compute_set: ComputeSet, codelet: "str | type") -> VertexTableBuilder:
        if isinstance(codelet, str):
            if codelet not in self.state.codelets:
                raise UnknownVertexType(
                    f"no codelet {codelet!r} in this graph.",
                    source=user_source(),
                    hint="add it with graph.add_codelets(…); "
                    + suggest(codelet, self.state.codelets),
                )
            found = self.state.codelets[codelet]
        else:
            found = codelet_of(codelet)
            self.state.codelets[found.spec.name] = found
        return compute_set.table_of(found, codelet)

    def connect(self, field: FieldRef | Tensor, value: object) -> None:
        """Connect a vertex's field (or one element of a list field) to a tensor or a constant."""
        if isinstance(value, FieldRef):  # Poplar's older order: connect(tensor, field)
            field, value = value, field
        if not isinstance(field, FieldRef):
            raise GraphConnectionError(
                f"connect got {type(field).__name__} and {type(value).__name__}, expected a field "
                "of a vertex and what it is connected to.",
                source=user_source(),
                hint='name the field: graph.connect(vertex["field"], tensor)',
            )
        if isinstance(value, int | float | bool):
            value = self._anonymous_constant(field, value)
        field.connect(value)

    def _anonymous_constant(self, field: FieldRef, value: float) -> Tensor | float:
        spec = field.vertex.table.field(field.name)
        return self.add_constant(spec.type, [], value) if spec.is_edge else value

    def set_field_size(self, field: FieldRef, size: int) -> None:
        """How many sub-vectors a list field has, when they are connected one by one."""
        field.edge_log().declared_sizes[field.vertex.row] = size

    def set_perf_estimate(self, vertex: VertexRef, cycles: int, flops: int = 0) -> None:
        """The cost of one vertex: worker cycles (tile cycles for Multi- and SupervisorVertex)."""
        vertex.table.estimates[vertex.row] = (int(cycles), int(flops))

    def register_perf_estimator(self, codelet: str, estimator: PerfEstimator) -> None:
        """`estimator(v, chip)` gives cycles, or (cycles, flops), of all vertices of a codelet."""
        self.state.perf_estimators[codelet] = estimator

    @property
    def n_vertices(self) -> int:
        return sum(compute_set.n_vertices for compute_set in self.state.compute_sets)

    @property
    def top(self) -> "Graph":
        """The graph that this virtual graph is part of; itself if it is none."""
        return self if self._top is None else self._top


def _check_values(type: Type, values: np.ndarray) -> None:
    """Raise unless values are numbers that fit a type."""
    if values.dtype.kind not in "biuf":
        raise TypeMismatch(
            f"values of {values.dtype} cannot fill a tensor of {type}.",
            source=user_source(),
            hint="give numbers",
        )
    if type.dtype.kind in "iu" and values.size:
        limits = np.iinfo(type.dtype)
        low, high = values.min(), values.max()
        if low < limits.min or high > limits.max:
            raise OverflowInField(
                f"value {low if low < limits.min else high} does not fit a tensor of {type}.",
                source=user_source(),
                hint=f"use {limits.min} to {limits.max}, or a wider type",
            )

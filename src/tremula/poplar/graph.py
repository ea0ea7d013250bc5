"""Graph: owns variables, tile maps, compute sets, streams and functions. It never runs anything."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, TextIO

import numpy as np

from tremula.base.errors import (
    GraphConnectionError,
    InvalidTileMapping,
    UnknownVertexType,
    suggest,
)
from tremula.base.source import user_source
from tremula.base.types import UNSIGNED_INT, Type, as_type
from tremula.codelets import codelet_of
from tremula.codelets.spec import Codelet, FieldKind
from tremula.poplar.dot import compute_graph, executed_sets, vertex_graph, write_text
from tremula.poplar.graph_state import GraphState, PerfEstimator
from tremula.poplar.mapping import (
    MIN_LINEAR_BYTES,
    TileNumbers,
    TilesGiven,
    VariableMappingMethod,
    checked_mapping,
    chosen_tiles,
    map_intervals,
    map_to_tile,
    mapping_of,
    target_of_tiles,
)
from tremula.poplar.programs import Function, FunctionBuffer, Program
from tremula.poplar.serialize import GraphContents, SerializationFormat
from tremula.poplar.streams import (
    DataStream,
    HostFunction,
    RemoteBuffer,
    ReplicatedStreamMode,
    buffering_depth_of,
    check_writable,
    claim,
)
from tremula.poplar.target import Device, Target
from tremula.poplar.tensors.initial_values import check_metadata, checked_shape, initial_values
from tremula.poplar.tensors.tensor import Tensor, check_is_tensor, variable_tensor
from tremula.poplar.tensors.tile_map import TileLists, TileMapping, linear_intervals
from tremula.poplar.vertices.bulk import bulk_edge
from tremula.poplar.vertices.compute_set import ComputeSet, FieldRef, VertexRef
from tremula.poplar.vertices.table import VertexTableBuilder

GraphLike = Target | Device
_WHOLE = (int, np.integer)  # made once: set_tile_mapping is called once per vertex


class Graph:
    """A tile program under construction.

    >>> from tremula import Graph, IPUModel, FLOAT
    >>> graph = Graph(IPUModel("bow").create_device())
    >>> x = graph.add_variable(FLOAT, [4, 5], "x", mapping="linear")
    >>> x[1:3].shape
    (2, 5)
    """

    def __init__(self, target: GraphLike, replication_factor: int = 1):
        full = target.target if isinstance(target, Device) else target
        self.replication_factor = replication_factor
        self.target = full.with_replicas(replication_factor)
        self.state = GraphState()
        self.tiles = TileNumbers(self.target.n_tiles)
        self._top: Graph | None = None

    # -- variables ---------------------------------------------------------------------------------

    def add_variable(
        self,
        type: Type | str,
        shape: Sequence[int],
        *args: "str | VariableMappingMethod | Tensor",
        name: str = "",
        mapping: "str | int | VariableMappingMethod | None" = None,
        metadata: Tensor | None = None,
    ) -> Tensor:
        """A new variable, row-major. `mapping`: None, "linear", or the tile that holds it all.

        `args`: its name, and as in Poplar before that a mapping method or a metadata tensor.
        """
        for one in args:
            if isinstance(one, VariableMappingMethod):
                mapping = one
            elif isinstance(one, Tensor):
                metadata = one
            else:
                name = one
        with self._undone_on_error():
            tensor = self._add(as_type(type), shape, name, metadata, is_constant=False)
            self._map_new(tensor, name, mapping)
        return tensor

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        """A call that fails leaves no variable behind that would be an error later."""
        n_variables = len(self.state.variables)
        try:
            yield
        except BaseException:
            self._forget_variables(n_variables)
            raise

    def _forget_variables(self, n: int) -> None:
        """Drop variables from number `n` on, which only the values and maps of theirs name."""
        if n < len(self.state.variables):
            first = self.state.variables.base_bytes[n]
            parts = self.state.initial_parts
            while parts and parts[-1][0].offset * parts[-1][0].type.n_bytes >= first:
                parts.pop()
            self.state.tile_map.forget_from(first)
            self.state.variables.forget_from(n)

    def _map_new(
        self, tensor: Tensor, name: str, mapping: "str | int | VariableMappingMethod | None"
    ) -> None:
        mapping = mapping.value if isinstance(mapping, VariableMappingMethod) else mapping
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
        """A constant; one scalar fills the shape. Mapped to tile 0 by default."""
        type = as_type(type)
        with self._undone_on_error():
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
        shape = checked_shape(name, shape)
        check_metadata(type, name, metadata)
        variables = self.state.variables
        variable = variables.add(name, type, shape, user_source(), is_constant)
        if metadata is not None:
            variables.metadata_of[variable] = metadata.variable_ids()[0]
        return variable_tensor(variables, variable)

    def clone(
        self, tensor: Tensor | Type, *args: Tensor | str, name: str = "",
        type: Type | str | None = None,
    ) -> Tensor:  # fmt: skip
        """A new variable with the same shape and the same tile mapping, element by element.

        `clone(tensor, name)`, or in Poplar's order `clone(type, tensor, name)`.
        """
        if isinstance(tensor, Type):
            (tensor, *args), type = args, tensor  # pyright: ignore[reportAssignmentType]
        if args:
            (name,) = args  # pyright: ignore[reportAssignmentType]
        source = check_is_tensor(tensor, "clone")
        type = source.type if type is None else as_type(type)
        copy = self._add(type, source.shape, name or "clone", source.metadata, is_constant=False)
        mapping = self.top.get_tile_mapping(source, require_complete=False)
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
        check_is_tensor(tensor, "set_initial_value")
        self.state.initial_parts.append((tensor, initial_values(tensor, value)))

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
        items = [what] if isinstance(what, str | Path | type) else list(what)
        classes = [w for w in items if isinstance(w, type)]
        added: dict[str, Codelet] = {c.spec.name: c for c in map(codelet_of, classes)}
        files = [w for w in items if not isinstance(w, type)]
        if files:
            from tremula.codelets.cpp import load_cpp_codelets  # few graphs have any

            added |= load_cpp_codelets(files, flags)
        self.state.codelets.update(added)
        return sorted(added)

    def has_codelet(self, name: str) -> bool:
        """Is a codelet of this name known?"""
        return name in self.state.codelets

    def add_compute_set(self, name: str = "") -> ComputeSet:
        """Add an empty compute set; vertices are added to it."""
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
            tile = self.tiles.checked(tile)
        row = table.add_row(tile, sys._getframe(1))
        if fields is not None:
            connectors, n_variables = table.connectors, len(self.state.variables)
            try:
                for name, value in fields.items():
                    connector = connectors.get(name)
                    if connector is None:
                        raise table.unknown_field(name)  # noqa: TRY301 - undone below
                    if value.__class__ is not Tensor and table.takes_constant(name, value):
                        value = self._constant_of(table, row, name, value)
                    connector(row, value)
            except BaseException:  # a vertex that is half connected would be an error later
                table.forget_last_row()
                self._forget_variables(n_variables)
                raise
        return VertexRef(table, row)

    def _constant_of(self, table: VertexTableBuilder, row: int, name: str, value: object) -> Tensor:
        """A constant for an Input, on the tile of its vertex, wherever that will be."""
        values = np.asarray(value)
        type = table.edges[name].spec.type
        constant = self.add_constant(type, values.shape, values, name, mapping=None)
        table.constants.setdefault(row, []).append(constant)
        if table.tile[row] >= 0:
            map_to_tile(self.state.tile_map, constant, table.tile[row])
        return constant

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
        self.tiles.check(tiles)
        table = self._table(compute_set, codelet)
        name, n_rows = table.codelet.spec.name, len(tiles)
        columns = {
            field: bulk_edge(
                name, table.edges[field].spec, self._bulk_constant(table, field, value, tiles),
                n_rows,
            )
            for field, value in fields.items()
            if field in table.edges
        }  # fmt: skip
        states = {f: table.bulk_state(f, v, n_rows) for f, v in fields.items() if f not in columns}
        first = table.add_rows(self.tiles.to_top(tiles), user_source())
        for field, column in columns.items():
            table.edges[field].blocks.append((first, column))
        for field, values in states.items():
            table.states[field].blocks.append((first, n_rows, values))

    def _bulk_constant(
        self, table: VertexTableBuilder, name: str, value: object, tiles: np.ndarray
    ) -> object:
        """One number for all vertices, or one for each, as a constant on their tiles."""
        spec = table.edges[name].spec
        if isinstance(value, Tensor) or spec.kind is not FieldKind.SCALAR:
            return value
        if not table.takes_constant(name, value) and not isinstance(value, np.ndarray | list):
            return value
        values = np.asarray(value)
        if values.dtype.kind not in "biuf" or values.shape not in ((), tiles.shape):
            return value
        constant = self.add_constant(spec.type, tiles.shape, values, name, mapping=None)
        at = np.arange(len(tiles))
        self._map_intervals(constant, at, at + 1, tiles)
        return constant

    def _table(self, compute_set: ComputeSet, codelet: "str | type") -> VertexTableBuilder:
        if isinstance(codelet, str):
            if codelet not in self.state.codelets:
                raise UnknownVertexType(
                    f"no codelet {codelet!r} in this graph.",
                    source=user_source(),
                    hint="add it with graph.add_codelets(…); "
                    + suggest(codelet, self.state.codelets),
                )
            result = self.state.codelets[codelet]
        else:
            result = codelet_of(codelet)
            self.state.codelets[result.spec.name] = result
        return compute_set.table_of(result, codelet)

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
        table = field.vertex.table
        if field.name in table.edges and table.takes_constant(
            field.name, value, is_element=field.index is not None
        ):
            value = self._constant_of(table, field.vertex.row, field.name, value)
        field.connect(value)

    def set_field_size(self, field: FieldRef, size: int) -> None:
        """How many sub-vectors a list field has, when they are connected one by one."""
        field.edge_log().declared_sizes[field.vertex.row] = size

    def set_perf_estimate(self, vertex: VertexRef, cycles: int, flops: int = 0) -> None:
        """The cost of one vertex: worker cycles (tile cycles for Multi- and SupervisorVertex)."""
        vertex.table.estimates[vertex.row] = (int(cycles), int(flops))

    def register_perf_estimator(self, codelet: str, estimator: PerfEstimator) -> None:
        """`estimator(v, chip)` returns cycles, or (cycles, flops), of all vertices of a codelet."""
        self.state.perf_estimators[codelet] = estimator

    # -- tiles -------------------------------------------------------------------------------------

    def set_tile_mapping(
        self, what: Tensor | VertexRef, where: int | np.integer | TileMapping | TileLists
    ) -> None:
        """Map a vertex to a tile, or a tensor to a tile or by a mapping. The last call wins."""
        if not isinstance(what, VertexRef):
            check_is_tensor(what, "set_tile_mapping")
        if isinstance(where, _WHOLE):
            tile = self.tiles.checked(int(where))
            if isinstance(what, VertexRef):
                what.table.tile[what.row] = tile
                for constant in what.table.constants.get(what.row, ()):
                    map_to_tile(self.state.tile_map, constant, tile)
            else:
                map_to_tile(self.state.tile_map, what, tile)
        elif isinstance(what, VertexRef):
            raise InvalidTileMapping(
                f"a vertex cannot be mapped to {where!r}.",
                source=user_source(),
                hint="give the number of one tile",
            )
        elif isinstance(where, str):
            raise InvalidTileMapping(
                f"a tensor cannot be mapped to {where!r}.",
                source=user_source(),
                hint="give a tile or a mapping; map_linearly(tensor) spreads it over the tiles",
            )
        else:
            mapping = checked_mapping(what, where, self.tiles)
            self._map_intervals(what, mapping.begin, mapping.end, mapping.tile)

    def _map_intervals(
        self, tensor: Tensor, begin: np.ndarray, end: np.ndarray, tile: np.ndarray
    ) -> None:
        map_intervals(self.state.tile_map, tensor, begin, end, self.tiles.to_top(tile))

    def map_linearly(
        self, tensor: Tensor, min_elems: int | None = None, grain: int | None = None
    ) -> None:
        """Spread a tensor over the tiles in order: whole vectors, at least 128 bytes a tile."""
        check_is_tensor(tensor, "map_linearly")
        size = tensor.type.n_bytes
        grain = grain or self.target.vector_width(tensor.type)
        least = -(-MIN_LINEAR_BYTES // size) if min_elems is None else min_elems
        begin, end = linear_intervals(tensor.n_elems, grain, self.target.n_tiles, least)
        self._map_intervals(tensor, begin, end, np.arange(len(begin)))

    def get_tile_mapping(self, tensor: Tensor, require_complete: bool = True) -> TileMapping:
        """Where each element of a tensor is, as intervals over its flattened elements."""
        check_is_tensor(tensor, "get_tile_mapping")
        return mapping_of(self.state.tile_map, tensor, self.tiles, require_complete)

    def create_virtual_graph(self, tiles: TilesGiven, upper: int | None = None) -> "Graph":
        """A view of this graph with its own tile numbers.

        `create_virtual_graph(n)`: the first n tiles of each IPU; `(lower, upper)`: a range of
        tiles; `([ids])`: these tiles.
        """
        chosen = chosen_tiles(self.target, self.tiles, tiles, upper)
        view = Graph.__new__(Graph)
        view.__dict__.update(self.__dict__)
        view.target = target_of_tiles(self.target, chosen)
        view.tiles = TileNumbers(view.target.n_tiles, self.tiles.to_top(chosen))
        view._top = self.top
        return view

    def to_top_level_tile(self, tile: int) -> int:
        """The top-level number of one of this graph's tiles."""
        return int(self.tiles.to_top(np.array([tile]))[0])

    def from_top_level_tile(self, tile: int) -> int:
        """This graph's number of a top-level tile; an error if it is not part of it."""
        return self.tiles.own_number(tile)

    # -- the host ----------------------------------------------------------------------------------

    def create_host_write(
        self,
        handle: str,
        tensor: Tensor,
        rearrange_on_host: bool = False,  # noqa: ARG002 (Poplar's; the model rearranges nothing)
    ) -> None:
        """Let the host write a tensor with `engine.write_tensor(handle, data)`."""
        check_is_tensor(tensor, "create_host_write")
        check_writable(handle, tensor)
        claim(self.state.handles.writes, handle, tensor)

    def create_host_read(
        self,
        handle: str,
        tensor: Tensor,
        rearrange_on_host: bool = False,  # noqa: ARG002 (Poplar's; the model rearranges nothing)
    ) -> None:
        """Let the host read a tensor with `engine.read_tensor(handle)`."""
        check_is_tensor(tensor, "create_host_read")
        claim(self.state.handles.reads, handle, tensor)

    def add_host_to_device_fifo(
        self,
        handle: str,
        type: Type | str,
        n_elements: int,
        mode: ReplicatedStreamMode = ReplicatedStreamMode.REPLICATE,
        options: Mapping[str, object] | None = None,
        *,
        buffering_depth: int = 1,
    ) -> DataStream:
        """A stream into the device; each Copy takes the next `n_elements`.

        Of Poplar's options `bufferingDepth` is used: with 2 or more the host works ahead, so that a
        transfer takes the latency of the machine's gateway, not of the host. `splitLimit` steers
        hardware only.
        """
        buffering_depth = buffering_depth_of(options, buffering_depth)
        stream = DataStream(handle, as_type(type), n_elements, True, mode, buffering_depth)
        return claim(self.state.handles.streams, handle, stream)

    def add_device_to_host_fifo(
        self,
        handle: str,
        type: Type | str,
        n_elements: int,
        options: Mapping[str, object] | None = None,
        *,
        buffering_depth: int = 1,
    ) -> DataStream:
        """A stream out of the device; for `bufferingDepth` see `add_host_to_device_fifo`."""
        buffering_depth = buffering_depth_of(options, buffering_depth)
        mode = ReplicatedStreamMode.REPLICATE
        stream = DataStream(handle, as_type(type), n_elements, False, mode, buffering_depth)
        return claim(self.state.handles.streams, handle, stream)

    def add_remote_buffer(
        self,
        handle: str,
        type: Type | str,
        n_elements: int,
        repeats: int = 1,
        rearrange_on_host: bool = False,  # noqa: ARG002 (Poplar's; the model rearranges nothing)
        optimise_memory: bool = False,  # noqa: ARG002
    ) -> RemoteBuffer:
        """Off-chip memory of `repeats` rows of `n_elements`."""
        buffer = RemoteBuffer(handle, as_type(type), n_elements, repeats)
        return claim(self.state.handles.remote_buffers, handle, buffer)

    def resize_remote_buffer(self, handle: str, repeats: int) -> RemoteBuffer:
        """Give a remote buffer another number of rows; copies made before continue using it."""
        buffers = self.state.handles.remote_buffers
        buffers[handle] = replace(buffers[handle], repeats=repeats)
        return buffers[handle]

    def add_host_function(
        self,
        handle: str,
        inputs: Iterable[tuple[Type | str, int]] = (),
        outputs: Iterable[tuple[Type | str, int]] = (),
    ) -> HostFunction:
        """Host code that programs can Call; inputs and outputs are (type, n_elements)."""
        function = HostFunction(
            handle,
            tuple((as_type(t), n) for t, n in inputs),
            tuple((as_type(t), n) for t, n in outputs),
        )
        return claim(self.state.handles.host_functions, handle, function)

    def add_function(self, program: Program, name: str = "") -> Function:
        """Code that all `Call`s of it share; it has no arguments."""
        return Function(program, name)

    def add_function_buffer(self, function: Function) -> FunctionBuffer:
        """Remote memory for a function's code."""
        return FunctionBuffer(function)

    # -- drawings ----------------------------------------------------------------------------------

    def output_vertex_graph(self, file: "str | Path | TextIO") -> None:
        """Write vertices, variables and the edges between them as a DOT file, for Graphviz."""
        write_text(file, vertex_graph(self.state.variables, self.state.compute_sets))

    def output_compute_graph(
        self, file: "str | Path | TextIO", programs: "Program | Iterable[Program]" = ()
    ) -> None:
        """Write compute sets and the variables they read and write as a DOT file.

        With programs, only what they execute, joined in the order they execute it.
        """
        executed = [programs] if isinstance(programs, Program) else list(programs)
        sets = executed_sets(executed) if executed else self.state.compute_sets
        write_text(file, compute_graph(self.state.variables, sets, is_ordered=bool(executed)))

    def serialize(
        self, out: IO[Any], format: SerializationFormat = SerializationFormat.Binary
    ) -> None:
        """Write a description of the graph to a stream: JSON, or the same deflated."""
        state, mapping_of = self.state, partial(self.get_tile_mapping, require_complete=False)
        parts = self.target, self.replication_factor, state.variables, state.compute_sets
        GraphContents(*parts, mapping_of).write(out, format)

    @property
    def n_vertices(self) -> int:
        """Vertices of all compute sets."""
        return sum(compute_set.n_vertices for compute_set in self.state.compute_sets)

    @property
    def top(self) -> "Graph":
        """The graph that this virtual graph is part of; itself if it is not virtual."""
        return self if self._top is None else self._top

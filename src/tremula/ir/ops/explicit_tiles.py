"""Operations that say which tiles hold and compute something: rows of arrays, one tile each.

`tremula::on_tiles` places the rows of an array, `tremula::tile_vertices` runs one vertex of a
codelet on each tile with its rows, `tremula::tile_cycles` reads the clock. On the host the first is
a copy, the second runs the same vertices on a small machine, and the clock is 0.
`tremula::scaled_add` is a sum with a scaled array in one vertex. Tiles draw
from the generators of their workers, whose seeds can be read and set (files `tile_random`).
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from tremula.base.errors import GraphConnectionError, InvalidTileMapping
from tremula.base.types import Type, as_type
from tremula.codelets.spec import FieldKind
from tremula.ir.ops.codelet_operation import TYPES
from tremula.poplar import programs
from tremula.poplar.graph import Graph
from tremula.poplar.target import IPUModel
from tremula.poplar.tensors.tensor import Tensor as TileTensor
from tremula.runtime.engine import Engine

_library = torch.library.Library("tremula", "FRAGMENT")
_library.define("on_tiles(Tensor x, int[] tiles) -> Tensor")
_library.define("scaled_add(Tensor x, Tensor y, Tensor scale, float sign) -> Tensor")
_library.define("tile_vertices(Tensor[] inputs, str call) -> Tensor[]")
_library.define("tile_cycles(Tensor[] arrays, int[] tiles) -> Tensor[]")


@dataclass(frozen=True)
class VertexCall:
    """One vertex on each tile: the codelet, which field is what, what is the same everywhere."""

    codelets: str | Path | type
    vertex: str
    tiles: tuple[int, ...]
    inputs: tuple[str, ...]  # fields, in the order of operands
    outputs: Mapping[str, tuple[tuple[int, ...], torch.dtype]]  # of one tile; may be inputs, too
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    temporary: Mapping[str, tuple[tuple[int, ...], torch.dtype]] = field(default_factory=dict)
    state: Mapping[str, float] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)  # fields that see bits as another type

    @property
    def key(self) -> str:
        constants = [(n, v.dtype.str, v.shape, v.tobytes()) for n, v in self.constants.items()]
        facts = (
            str(self.codelets), self.vertex, self.tiles, self.inputs, sorted(self.outputs.items()),
            constants, sorted(self.temporary.items()), sorted(self.state.items()),
        )  # fmt: skip
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:24]


class Place(Protocol):
    """Where vertices are added: a lowering, or the small machine of the host."""

    @property
    def graph(self) -> Graph: ...
    @property
    def sequence(self) -> programs.Sequence: ...
    @property
    def name(self) -> str: ...


@dataclass(frozen=True)
class _HostPlace:
    graph: Graph
    sequence: programs.Sequence
    name: str


_calls: dict[str, VertexCall] = {}
_engines: dict[tuple, Engine] = {}


def vertices(inputs: Sequence[Tensor], call: VertexCall) -> list[Tensor]:
    """The results of a call, recorded or computed."""
    _calls.setdefault(call.key, call)
    return torch.ops.tremula.tile_vertices(list(inputs), call.key)


def call_of(key: str) -> VertexCall:
    return _calls[key]


# -- on tiles --------------------------------------------------------------------------------------


def placed_rows(tiles: Place, shape: Sequence[int], type: Type, rows: Sequence[int],
                name: str = "") -> TileTensor:  # fmt: skip
    """A new variable whose row i is on tile rows[i]."""
    graph = tiles.graph
    n_tiles = graph.target.n_tiles
    for tile in rows:
        if not 0 <= tile < n_tiles:
            raise InvalidTileMapping(
                f"there is no tile {tile} on a chip of {n_tiles} tiles.",
                hint=f"use tiles from 0 to {n_tiles - 1}",
            )
    new = graph.add_variable(type, list(shape), name=name or tiles.name)
    for row, tile in enumerate(rows):
        graph.set_tile_mapping(new[row], int(tile))
    return new


def placed(tiles: Place, x: TileTensor, rows: Sequence[int]) -> TileTensor:
    """The rows of a tensor on their tiles: itself if they are there, else a copy."""
    if _is_placed(tiles.graph, x, rows):
        return x
    new = placed_rows(tiles, x.shape, x.type, rows)
    tiles.sequence.add(programs.Copy(x, new))
    return new


def _is_placed(graph: Graph, x: TileTensor, rows: Sequence[int]) -> bool:
    size = x.n_elems // max(len(rows), 1)
    if not size or not x.is_contiguous:
        return not size
    wanted = np.repeat(np.asarray(rows, np.int64), size)
    result = np.full(x.n_elems, -1, np.int64)
    for tile, intervals in enumerate(graph.get_tile_mapping(x.flatten(), False)):
        for interval in intervals:
            result[interval.begin : interval.end] = tile
    return bool((result == wanted).all())


def add_vertices(tiles: Place, operands: list[TileTensor], call: VertexCall) -> list:
    """The compute set of a call; returns its results."""
    graph = tiles.graph
    graph.add_codelets(call.codelets)
    n = len(call.tiles)
    edges: dict[str, TileTensor] = {}
    for name, operand in zip(call.inputs, operands, strict=True):
        if name in call.outputs:  # read and written: a new copy
            edges[name] = placed_rows(tiles, operand.shape, operand.type, call.tiles, name)
            tiles.sequence.add(programs.Copy(operand, edges[name]))
        else:
            edges[name] = placed(tiles, operand, call.tiles)
    made = {**call.outputs, **call.temporary}
    for name, (shape, dtype) in made.items():
        if name not in edges:
            edges[name] = placed_rows(tiles, (n, *shape), TYPES[dtype], call.tiles, name)
    for name, value in call.constants.items():
        rows = np.ascontiguousarray(np.broadcast_to(value, (n, *value.shape)))
        constant = graph.add_constant(as_type(value.dtype), rows.shape, rows, name)
        for row, tile in enumerate(call.tiles):
            graph.set_tile_mapping(constant[row], int(tile))
        edges[name] = constant
    compute_set = graph.add_compute_set(tiles.name)
    seen = {
        name: x.reinterpret(as_type(call.types[name])) if name in call.types else x
        for name, x in edges.items()
    }
    shaped = {name: _as_field(graph, call.vertex, name, x, n) for name, x in seen.items()}
    graph.add_vertices(compute_set, call.vertex, {**shaped, **call.state}, tiles=call.tiles)
    tiles.sequence.add(programs.Execute(compute_set))
    return [edges[name] for name in call.outputs]


def _as_field(graph: Graph, vertex: str, name: str, x: TileTensor, n: int) -> TileTensor:
    """Rows as a codelet's field takes them: numbers, vectors or lists of vectors."""
    spec = graph.state.codelets[vertex].spec if vertex in graph.state.codelets else None
    if spec is None:
        raise GraphConnectionError(
            f"there is no codelet {vertex!r} in the given file.",
            hint=f"codelets of the graph: {', '.join(sorted(graph.state.codelets)[:12])}",
        )
    kinds = {f.name: f.kind for f in spec.fields}
    kind = kinds.get(name)
    if kind is FieldKind.SCALAR:
        return x.reshape([n])
    if kind is FieldKind.VECTOR_LIST:
        return x.reshape([n, x.shape[1], x.n_elems // (n * x.shape[1])])
    return x.reshape([n, x.n_elems // n])


# -- on the host -----------------------------------------------------------------------------------


def _run_vertices(inputs: list[Tensor], key: str) -> list[Tensor]:
    call = call_of(key)
    engine = _engine(inputs, call)
    for i, tensor in enumerate(inputs):
        engine.write_tensor(f"in{i}", tensor.detach().cpu().numpy())
    engine.run()
    device = inputs[0].device if inputs else torch.device("cpu")
    return [
        torch.from_numpy(engine.read_tensor(f"out{i}"))
        .reshape(len(call.tiles), *shape)
        .view(dtype)
        .to(device)
        for i, (shape, dtype) in enumerate(call.outputs.values())
    ]


def _engine(inputs: list[Tensor], call: VertexCall) -> Engine:
    """The call on a machine with as many tiles as it has vertices."""
    key = call.key, tuple((x.dtype, tuple(x.shape)) for x in inputs)
    if key not in _engines:
        n = len(call.tiles)
        own = VertexCall(**{**call.__dict__, "tiles": tuple(range(n))})
        graph = Graph(IPUModel("bow", tiles_per_ipu=n).create_device())
        place = _HostPlace(graph, programs.Sequence(), call.vertex)
        operands = []
        for i, x in enumerate(inputs):
            operand = placed_rows(place, x.shape, TYPES[x.dtype], own.tiles, f"in{i}")
            graph.create_host_write(f"in{i}", operand)
            operands.append(operand)
        for i, result in enumerate(add_vertices(place, operands, own)):
            graph.create_host_read(f"out{i}", result)
        _engines[key] = Engine(graph, place.sequence, writes_reports=False).load()
    return _engines[key]


def _fake_vertices(inputs: list[Tensor], key: str) -> list[Tensor]:
    call = call_of(key)
    device = inputs[0].device if inputs else None
    return [
        torch.empty((len(call.tiles), *shape), dtype=dtype, device=device)
        for shape, dtype in call.outputs.values()
    ]


def _no_cycles(arrays: list[Tensor], tiles: list[int]) -> list[Tensor]:
    counts = torch.zeros((len(tiles), 2), dtype=torch.int32, device=arrays[0].device)
    return [*(x.clone() for x in arrays), counts]


def _scaled_add(x: Tensor, y: Tensor, scale: Tensor, sign: float) -> Tensor:
    return x + scale * y if sign > 0 else x - scale * y


for _device in ("CPU", "CUDA"):
    _library.impl("scaled_add", _scaled_add, _device)
    _library.impl("on_tiles", lambda x, _tiles: x.clone(), _device)
    _library.impl("tile_vertices", _run_vertices, _device)
    _library.impl("tile_cycles", _no_cycles, _device)
torch.library.register_fake("tremula::scaled_add", _scaled_add, lib=_library)
torch.library.register_fake("tremula::on_tiles", lambda x, tiles: torch.empty_like(x), lib=_library)  # noqa: ARG005
torch.library.register_fake("tremula::tile_vertices", _fake_vertices, lib=_library)
torch.library.register_fake("tremula::tile_cycles", _no_cycles, lib=_library)

"""Custom operations made of codelets: which vertices, fields and shapes make one."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor as TorchTensor

from tremula.base.errors import GraphConnectionError
from tremula.base.source import user_source
from tremula.base.types import (
    BOOL,
    FLOAT,
    HALF,
    INT,
    SHORT,
    SIGNED_CHAR,
    UNSIGNED_CHAR,
)
from tremula.codelets.spec import FieldKind
from tremula.ir.ops.custom import Attributes, CustomOperation, Gradient, custom_operation
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Execute, Sequence
from tremula.poplar.target import IPUModel
from tremula.poplar.tensors.tensor import Tensor
from tremula.runtime.engine import Engine

TYPES = {
    torch.float32: FLOAT, torch.float16: HALF, torch.int32: INT, torch.int16: SHORT,
    torch.int8: SIGNED_CHAR, torch.uint8: UNSIGNED_CHAR, torch.bool: BOOL,
}  # fmt: skip
_N_HOST_TILES = 4  # of the small machine that computes it for the host

Codelets = str | Path | type | Iterable[str | Path | type]


def codelet_operation(  # noqa: PLR0913 - what an operation is
    name: str,
    domain: str = "custom.ops",
    version: int = 1,
    *,
    codelets: Codelets,
    vertex: str,
    inputs: Iterable[str],
    outputs: Mapping[str, int],
    state: Mapping[str, str | float] | None = None,
    flags: str = "",
    gradient: Gradient | None = None,
) -> CustomOperation:
    """Register an operation whose vertices are codelets, each tile working on what it holds.

    codelets, flags: as for `Graph.add_codelets`; files are also looked for beside the file that
    calls this. vertex: the codelet's name; `{0}` in it is the type
    of operand 0. inputs: the field of each operand. outputs: of each result its field, and the
    operand whose shape and type it has. state: of other fields, the attribute or number they get.
    gradient: as for `custom_operation`. Operands of the first result's size are divided among the
    tiles as it is; others go to every vertex whole. The host computes the same codelets.
    """
    beside = Path(user_source().file).parent
    listed = [codelets] if isinstance(codelets, str | Path | type) else list(codelets)
    result = [_found(one, beside) for one in listed]
    made = _Codelets(result, flags, vertex, tuple(inputs), dict(outputs), dict(state or {}))
    return custom_operation(
        name, domain, version, host=made.on_host, tiles=made.on_tiles, gradient=gradient
    )


def _found(codelets: str | Path | type, beside: Path) -> str | Path | type:
    """A path as it can be opened from anywhere; classes and source text as they are."""
    if isinstance(codelets, type) or "{" in str(codelets):
        return codelets
    near = beside / codelets
    return (near if near.is_file() and not Path(codelets).is_file() else Path(codelets)).resolve()


class _Codelets:
    """The vertices of one operation."""

    def __init__(
        self, codelets: list[str | Path | type], flags: str, vertex: str, inputs: tuple[str, ...],
        outputs: dict[str, int], state: dict[str, str | float],
    ):  # fmt: skip
        self.codelets, self.flags, self.vertex = codelets, flags, vertex
        self.inputs, self.outputs, self.state = inputs, outputs, state
        self._engines: dict[str, Engine] = {}

    def on_tiles(self, tiles: Any, operands: list[Tensor], attributes: Attributes) -> list[Tensor]:  # noqa: ANN401
        """A vertex for every contiguous part of the first result."""
        graph: Graph = tiles.graph
        graph.add_codelets(self.codelets, self.flags)
        vertex = self.vertex.format(*(operand.type.spelling for operand in operands))
        self._check(vertex, operands)
        results = [graph.clone(operands[i], f"{tiles.name}/{f}") for f, i in self.outputs.items()]
        compute_set = graph.add_compute_set(tiles.name)
        values = {f: attributes[s] if isinstance(s, str) else s for f, s in self.state.items()}
        for tile, intervals in enumerate(graph.get_tile_mapping(results[0].flatten())):
            for interval in intervals:
                part = slice(interval.begin, interval.end)
                edges = dict(zip(self.inputs, operands, strict=True))
                edges |= dict(zip(self.outputs, results, strict=True))
                added = graph.add_vertex(compute_set, vertex, values, tile=tile)
                for field, tensor in edges.items():
                    is_divided = tensor.n_elems == results[0].n_elems
                    own = tensor.flatten()[part] if is_divided else tensor.flatten()
                    is_scalar = added.table.field(field).kind is FieldKind.SCALAR
                    graph.connect(added[field], own.reshape([]) if is_scalar else own)
        tiles.sequence.add(Execute(compute_set))
        return results

    def _check(self, vertex: str, operands: list[Tensor]) -> None:
        if len(operands) != len(self.inputs):
            raise GraphConnectionError(
                f"vertex {vertex!r} was registered for {len(self.inputs)} operands"
                f" ({', '.join(self.inputs)}), got {len(operands)}.",
                hint="name the field of every operand with inputs=[…]",
            )

    def on_host(self, inputs: list[TorchTensor], attributes: Attributes) -> list[TorchTensor]:
        """What the same vertices give on a small machine."""
        engine = self._engine(inputs, attributes)
        for i, tensor in enumerate(inputs):
            engine.write_tensor(f"in{i}", tensor.detach().cpu().numpy())
        engine.run()
        like = [inputs[i] for i in self.outputs.values()]
        return [
            torch.from_numpy(engine.read_tensor(f"out{i}")).reshape(x.shape).to(x.device)
            for i, x in enumerate(like)
        ]

    def _engine(self, inputs: list[TorchTensor], attributes: Attributes) -> Engine:
        key = json.dumps([[str(x.dtype), list(x.shape)] for x in inputs] + [dict(attributes)])
        if key not in self._engines:
            model = IPUModel("ipu2", tiles_per_ipu=_N_HOST_TILES)
            graph, sequence = Graph(model.create_device()), Sequence()
            operands = []
            for i, x in enumerate(inputs):
                operand = graph.add_variable(TYPES[x.dtype], x.shape, f"in{i}", mapping="linear")
                graph.create_host_write(f"in{i}", operand)
                operands.append(operand)
            place = SimpleNamespace(graph=graph, sequence=sequence, name=self.vertex)
            for i, result in enumerate(self.on_tiles(place, operands, attributes)):
                graph.create_host_read(f"out{i}", result)
            self._engines[key] = Engine(graph, sequence, writes_reports=False).load()
        return self._engines[key]

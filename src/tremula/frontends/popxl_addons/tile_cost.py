"""What a graph takes on the tiles of one replica: compiled for real shapes, nothing computed.

A graph becomes one function of PyTorch: operations as they are, collectives as operations of the
tile program, which send over the modelled links. A graph that is called several times is a function
of the tile program: code and memory are there once, and what a gradient computes again is not kept.
So the report has cycles, memory of every tile and bytes of every link; weights need not exist.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

import popxl
from tremula.compiler.compile import compile_graph
from tremula.compiler.executable.executable import Executable
from tremula.compiler.report.report import Report
from tremula.frontends.popxl.core.call_site import modified_inputs
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.dtypes import to_carrier
from tremula.frontends.popxl.run.interpreter import plan_of
from tremula.frontends.popxl.run.tile_collectives import on_tiles
from tremula.frontends.popxl_addons.notes import notes_of
from tremula.ir.capture.bodies import record_function
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.lowering.tiles import LoweringOptions
from tremula.ir.recording import active
from tremula.ir.run.tile_run import capture_function
from tremula.poplar.target import IPUModel
from tremula.runtime.forecast import forecast

Values = dict[popxl.Tensor, Tensor]


@dataclass(frozen=True)
class TileOptions:
    """The machine that graphs are compiled for, and how products are planned."""

    chip: str = "bow"
    n_tiles: int = 0  # of each chip; 0: all it has
    available_memory: float = 0.2  # the share of a tile that products take, unless the Ir says
    partials_type: str | None = None
    n_io_tiles: int = 0  # of each chip's, set aside for transfers on I/O tiles
    engine_options: Mapping[str, object] = field(
        default_factory=lambda: {"debug.allowOutOfMemory": True}
    )

    def lowering(self, ir: popxl.Ir) -> LoweringOptions:
        """As the tile program's builder wants it; values stay on the chip."""
        shares = notes_of(ir).get("available_memory", {0: self.available_memory})
        return LoweringOptions(
            partials_type=self.partials_type,
            available_memory=shares,
            has_synthetic_data=True,
            n_io_tiles=self.n_io_tiles,
        )


@dataclass(frozen=True)
class TileCost:
    """A graph compiled for the tiles of one of many replicas."""

    name: str
    executable: Executable
    report: Report

    @property
    def cycles(self) -> int:
        """Of one call; 0 if everything it gives was known when it was compiled."""
        return int(self.report.cycles_of_chip.max(initial=0))


def cost_of_graph(graph: popxl.Graph, options: TileOptions | None = None) -> TileCost:
    """Compile a graph for tiles, and forecast one call; inputs lie where readers want them."""
    return _cost(graph, graph.inputs, tile_function(graph), options or TileOptions())


def cost_of_operations(
    graph: popxl.Graph, operations: list[Op], options: TileOptions | None = None
) -> TileCost:
    """The same for some operations of a graph, whatever the others are."""
    made = {t for op in operations for t in op.outputs}
    read = dict.fromkeys(t for op in operations for t in op.inputs)
    inputs = [t for t in read if t not in made and not isinstance(t, popxl.Constant)]

    def function(*given: Tensor) -> list[Tensor]:
        values: Values = dict(zip(inputs, (value.clone() for value in given), strict=True))
        for constant in graph.constants:
            values[constant] = to_carrier(constant.data, constant.dtype)
        _Evaluation().run(operations, values)
        return [values[t] for t in made] + [values[t] for t in inputs if t in written]

    written = {op.inputs[i] for op in operations for i in op.modified()}
    return _cost(graph, inputs, function, options or TileOptions())


def _cost(
    graph: popxl.Graph,
    inputs: Sequence[popxl.Tensor],
    function: Callable[..., list[Tensor]],
    options: TileOptions,
) -> TileCost:
    # One element, repeated: shapes are all that recording needs.
    given = [torch.zeros((), dtype=t.dtype.carrier).expand(t.shape) for t in inputs]
    step = capture_function(function, given)
    n_replicas = graph.ir.replication_factor
    device = IPUModel(options.chip, n_replicas, options.n_tiles).create_device()
    schedule = Schedule(n_replicas=n_replicas)
    built = build_tile_program(step, device.target, schedule, options.lowering(graph.ir))
    executable = compile_graph(built.graph, [built.program], options.engine_options)
    return TileCost(graph.name, executable, forecast(executable))


def tile_function(graph: popxl.Graph) -> Callable[..., list[Tensor]]:
    """A function from inputs of a graph on one replica to its outputs, and to what it changed."""

    def function(*inputs: Tensor) -> list[Tensor]:
        given = [value.clone() for value in inputs]
        outputs = _Evaluation().of(graph, given)
        changed = [
            value for t, value in zip(graph.inputs, given, strict=True)
            if t in graph.by_ref_inputs
        ]  # fmt: skip
        return [*outputs, *changed]

    return function


class _Evaluation:
    """Operations run on tensors, without values if need be.

    A graph that another calls several times is a function of the program. One that it calls once
    stands in its place, even if there is such a function: what is live at one call of a function
    needs memory at all of them.
    """

    def __init__(self) -> None:
        self.keys: dict[tuple[popxl.Graph, tuple[int, ...]], str] = {}
        self.n_calls: dict[popxl.Graph, Counter[popxl.Graph]] = {}  # by the graph that calls

    def of(self, graph: popxl.Graph, inputs: list[Tensor]) -> list[Tensor]:
        """Outputs of a graph."""
        values: Values = dict(zip(graph.inputs, inputs, strict=True))
        for constant in graph.constants:
            values[constant] = to_carrier(constant.data, constant.dtype)
        self.run(graph.ops, values)
        return [values[t] for t in graph.outputs]

    def run(self, operations: Iterable[Op], values: Values) -> None:
        for op in operations:
            results = self._results(op, [values[t] for t in op.inputs])
            values.update(zip(op.outputs, results, strict=True))

    def _results(self, op: Op, inputs: list[Tensor]) -> list[Tensor]:
        if op.kind == "Call":
            return self._called(op, inputs)
        if op.kind == "Init":
            t = op.outputs[0]
            return [torch.zeros(t.shape, dtype=t.dtype.carrier)]
        if op.row.is_collective:
            return [on_tiles(op, inputs[0])]
        if op.row.compute is None:
            raise ValueError(
                f"{op.kind} cannot be costed as a part of {op.graph.name}: cost the graphs that it"
                " runs, and the bytes that it moves"
            )
        result = op.compute(inputs)
        return list(result) if isinstance(result, list | tuple) else [result]

    def _called(self, op: Op, inputs: list[Tensor]) -> list[Tensor]:
        graph, state = op.graphs[0], active()
        if state is None or not self._is_function(op):
            return self.of(graph, inputs)
        written = tuple(sorted(plan_of(graph).aliases.written_inputs & modified_inputs(op)))
        if (graph, written) not in self.keys:

            def body(*parts: Tensor) -> list[Tensor]:
                own = [p.clone() if i in written else p for i, p in enumerate(parts)]
                return [*self.of(graph, own), *(own[i] for i in written)]

            self.keys[graph, written] = record_function(state, body, inputs)
        result = torch.ops.tremula.call(inputs, self.keys[graph, written])
        n = len(graph.outputs)
        for i, value in zip(written, result[n:], strict=True):
            inputs[i].copy_(value)
        return list(result[:n])

    def _is_function(self, op: Op) -> bool:
        calls = self.n_calls.get(op.graph)
        if calls is None:
            sites = (graph for o in op.graph.ops if o.kind == "Call" for graph in o.graphs)
            calls = self.n_calls[op.graph] = Counter(sites)
        return calls[op.graphs[0]] > 1

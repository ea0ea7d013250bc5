"""What a graph takes on the tiles of one replica: compiled for real shapes, nothing computed.

A graph becomes one function of PyTorch: operations as they are, collectives as operations of the
tile program, which send over the modelled links. A graph that is called several times is a function
of the tile program: code and memory are there once, and what a gradient computes again is not kept.
So the report has cycles, memory of every tile and bytes of every link; weights need not exist.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

import popxl
from tremula.compiler.compile import compile_graph
from tremula.compiler.executable.executable import Executable
from tremula.compiler.report.report import ProgramReport
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.dtypes import to_carrier
from tremula.frontends.popxl.run.interpreter import Frame, Value, plan_of
from tremula.frontends.popxl.run.memory import DeviceMemory
from tremula.frontends.popxl.run.tracer import Tracer
from tremula.frontends.popxl_addons.notes import notes_of
from tremula.ir.lowering.options import LoweringOptions
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.run.tile_run import capture_function
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Program
from tremula.poplar.target import IPUModel
from tremula.runtime.forecast import forecast


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
    report: ProgramReport

    @property
    def cycles(self) -> int:
        """Of one call; 0 if all its results were known when it was compiled."""
        return int(self.report.cycles_of_chip.max(initial=0))


def cost_of_graph(graph: popxl.Graph, options: TileOptions | None = None) -> TileCost:
    """Compile a graph for tiles, and forecast one call; readers choose layouts of inputs."""
    return _cost(graph, graph.inputs, tile_function(graph), options or TileOptions())


def cost_of_operations(
    graph: popxl.Graph, operations: list[Op], options: TileOptions | None = None
) -> TileCost:
    """Compile some operations of a graph for tiles, and forecast one run of them."""
    made = {t for op in operations for t in op.outputs}
    read = dict.fromkeys(t for op in operations for t in op.inputs)
    inputs = [t for t in read if t not in made and not isinstance(t, popxl.Constant)]

    def function(*x: Tensor) -> list[Tensor]:
        frame = {t: [value.clone()] for t, value in zip(inputs, x, strict=True)}
        tracer = _GraphTracer(graph.ir)
        for c in graph.constants:
            frame[c] = [tracer.constant(to_carrier(c.data, c.dtype))]
        for op in operations:
            tracer.run_op(op, frame)
        return [frame[t][0] for t in made] + [frame[t][0] for t in inputs if t in written]

    written = {op.inputs[i] for op in operations for i in op.modified()}
    return _cost(graph, inputs, function, options or TileOptions())


def _cost(
    graph: popxl.Graph,
    inputs: Sequence[popxl.Tensor],
    function: Callable[..., list[Tensor]],
    options: TileOptions,
) -> TileCost:
    _plan_before_recording(graph)
    # One element, repeated: shapes are all that recording needs.
    placeholders = [torch.zeros((), dtype=t.dtype.carrier).expand(t.shape) for t in inputs]
    step = capture_function(function, placeholders)
    n_replicas = graph.ir.replication_factor
    device = IPUModel(options.chip, n_replicas, options.n_tiles).create_device()
    schedule = Schedule(n_replicas=n_replicas)
    built = build_tile_program(step, device.target, schedule, options.lowering(graph.ir))
    return cost_of_program_on_tiles(graph.name, built.graph, built.program, options)


def cost_of_program_on_tiles(
    name: str, graph: Graph, program: Program, options: TileOptions
) -> TileCost:
    """Compile a program of Poplar's and forecast one run."""
    executable = compile_graph(graph, [program], options.engine_options)
    return TileCost(name, executable, forecast(executable))


def tile_function(graph: popxl.Graph) -> Callable[..., list[Tensor]]:
    """A function from inputs of a graph on one replica to its outputs, and to what it changed."""
    _plan_before_recording(graph)

    def function(*inputs: Tensor) -> list[Tensor]:
        values = [[value.clone()] for value in inputs]
        outputs = _GraphTracer(graph.ir).call(graph, values, set(range(len(values))))
        changed = [
            value for t, value in zip(graph.inputs, values, strict=True)
            if t in graph.by_ref_inputs
        ]  # fmt: skip
        return [value[0] for value in (*outputs, *changed)]

    return function


def _plan_before_recording(graph: popxl.Graph) -> None:
    """Plan a graph and those it calls: the constants of a plan must not belong to a recording."""
    waiting, planned = [graph], set()
    while waiting:
        current = waiting.pop()
        if current not in planned:
            planned.add(current)
            plan_of(current)
            waiting += [called for op in current.ops for called in op.graphs]


class _GraphTracer(Tracer):
    """Runs a graph on tensors without values: nothing is loaded or stored.

    A graph that another calls several times is a function of the program. One that it calls once
    is written out, even if there is such a function: what is live at one call of a function needs
    memory at all of them.
    """

    def __init__(self, ir: popxl.Ir):
        super().__init__(DeviceMemory(ir), {}, {}, set())
        self._n_calls: dict[popxl.Graph, Counter[popxl.Graph]] = {}  # by the graph that calls

    def run_op(self, op: Op, frame: Frame) -> None:
        if op.row.compute is None and op.kind not in {"Call", "Init"}:
            raise ValueError(
                f"{op.kind} cannot be costed as a part of {op.graph.name}: cost the graphs that it"
                " runs, and the bytes that it moves"
            )
        super().run_op(op, frame)

    def call_op(self, op: Op, values: list[Value]) -> list[Value]:
        calls = self._n_calls.get(op.graph)
        if calls is None:
            sites = (graph for o in op.graph.ops if o.kind == "Call" for graph in o.graphs)
            calls = self._n_calls[op.graph] = Counter(sites)
        self.functions = {graph for graph in op.graphs if calls[graph] > 1}
        return super().call_op(op, values)

"""What a whole program takes on its machine: each graph compiled once, counted as often as it runs.

A program of phases has few distinct graphs. Those that only compute are compiled for the tiles of
one replica, with their collectives on the modelled links. Graphs that also loop, load or store are
walked: their own operations are compiled, too, and transfers with memory beside the chips are
costed as copies of a tile program. A phase is what one call or loop of the main graph runs.
Transfers on I/O tiles take only what computing does not hide (`overlap`).

Graphs that run on different chips of a replica, and need nothing from each other, run at once: the
stages of a pipeline.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

import popxl
from tremula.base.types import CHAR
from tremula.compiler.report.report import ProgramReport
from tremula.frontends.popxl.core.call_site import modified_inputs
from tremula.frontends.popxl.core.op import TRANSFERS, Op
from tremula.frontends.popxl_addons.overlap import (
    RUNS_GRAPHS,
    Exchange,
    exchanges_of,
    hidden_cycles,
)
from tremula.frontends.popxl_addons.tile_cost import (
    TileCost,
    TileOptions,
    cost_of_graph,
    cost_of_operations,
    cost_of_program_on_tiles,
)
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.target import IPUModel

_NOT_COMPUTED = {*TRANSFERS, *RUNS_GRAPHS, "RemoteCodeLoad", "PrintTensor"}


@dataclass(frozen=True)
class ProgramPart:
    """A graph, or its transfers, in a phase: how often it runs, and what once takes."""

    phase: str
    name: str
    kind: str  # "tiles", "streaming memory" or "host"
    n_times: int
    cycles: int
    n_bytes: int = 0  # of transfers
    report: ProgramReport | None = None  # of what runs on tiles
    hidden_cycles: int = 0  # of them run while something else does

    @property
    def total_cycles(self) -> int:
        return self.n_times * (self.cycles - self.hidden_cycles)

    @property
    def link_cycles(self) -> int:
        """Of one time: between chips."""
        if self.report is None:
            return 0
        executed = self.report.steps.executed[:, None]
        return int((self.report.link_exchange * executed).sum(axis=0).max(initial=0))


@dataclass(frozen=True)
class ProgramCost:
    """One run of a program: all parts of all phases, in order."""

    parts: tuple[ProgramPart, ...]
    clock_hz: float
    n_streaming_bytes: int  # of each replica
    reports: dict[str, TileCost] = field(repr=False, default_factory=dict)  # by graph

    @property
    def phases(self) -> list[str]:
        return list(dict.fromkeys(part.phase for part in self.parts))

    @property
    def total_cycles(self) -> int:
        return sum(part.total_cycles for part in self.parts)

    @property
    def total_seconds(self) -> float:
        return self.total_cycles / self.clock_hz

    def seconds(self, phase: str, kind: str | None = None) -> float:
        """Of a phase, or what transfers of one kind, or tiles, take in it."""
        chosen = [p for p in self.parts if p.phase == phase and kind in (None, p.kind)]
        return sum(p.total_cycles for p in chosen) / self.clock_hz

    def hidden_seconds(self, phase: str) -> float:
        """Of a phase: transfers that pass while something else runs, and stages of a pipeline."""
        chosen = [p for p in self.parts if p.phase == phase]
        return sum(p.n_times * p.hidden_cycles for p in chosen) / self.clock_hz

    def link_seconds(self, phase: str) -> float:
        """Of a phase: how long tiles wait for links between chips."""
        chosen = [p for p in self.parts if p.phase == phase]
        return sum(p.n_times * p.link_cycles for p in chosen) / self.clock_hz

    def transfer_bytes(self, phase: str, kind: str = "streaming memory") -> int:
        """What a replica moves in a phase from or to memory next to it, or the host."""
        chosen = [p for p in self.parts if p.phase == phase and p.kind == kind]
        return sum(p.n_times * p.n_bytes for p in chosen)

    def link_bytes(self, phase: str | None = None) -> dict[str, int]:
        """What each link carries in a phase, or in all; the busiest first."""
        total: dict[str, int] = {}
        busy: dict[str, float] = {}
        for part in self.parts:
            if part.report is None or phase not in (None, part.phase):
                continue
            links = part.report.links
            for name, n_bytes, seconds in zip(
                links.name, links.n_bytes.tolist(), links.busy_seconds.tolist(), strict=True
            ):
                total[name] = total.get(name, 0) + part.n_times * n_bytes
                busy[name] = busy.get(name, 0.0) + part.n_times * seconds
        return {name: total[name] for name in sorted(total, key=lambda name: -busy[name])}

    @cached_property
    def largest(self) -> TileCost:
        """The graph that needs the most memory of a tile."""
        return max(self.reports.values(), key=lambda cost: int(cost.report.tiles.n_bytes.max()))

    def memory_by_category(self) -> dict[str, int]:
        """Bytes of a chip in the graph that needs the most, by category."""
        result = self.largest.report.bytes_by_category()
        return {name: int(column.sum()) for name, column in result.items() if column.any()}


def cost_of_program(ir: popxl.Ir, options: TileOptions | None = None) -> ProgramCost:
    """Compile the graphs of a program, and sum what a run of its main graph takes."""
    return _Costing(ir, options or TileOptions()).run()


class _Costing:
    """Graphs that were compiled, and transfers that were costed, each once."""

    def __init__(self, ir: popxl.Ir, options: TileOptions):
        self.ir, self.options = ir, options
        self.costs: dict[popxl.Graph, TileCost | None] = {}
        self.transfers: dict[tuple[str, int, bool], int] = {}
        self.totals: dict[popxl.Graph, int] = {}  # cycles of graphs that are called
        self.is_plain: dict[popxl.Graph, bool] = {}
        device = IPUModel(options.chip, ir.replication_factor, options.n_tiles).create_device()
        self.target = device.target

    def run(self) -> ProgramCost:
        parts = tuple(self._main())
        compiled = {cost.name: cost for cost in self.costs.values() if cost is not None}
        n_bytes = sum(buffer.n_bytes for buffer in self.ir.remote_buffers)
        return ProgramCost(parts, self.target.chip.clock_hz, n_bytes, compiled)

    def _main(self) -> Iterator[ProgramPart]:
        main = self.ir.main_graph
        yield from self._runs(main, 1, None)
        yield from self._own_parts("main", main, 1)

    def _runs(self, graph: popxl.Graph, n_times: int, phase: str | None) -> Iterator[ProgramPart]:
        """Graphs that a graph runs; each is a separate phase unless one is given."""
        for group in _independent(graph):
            parts: list[ProgramPart] = []
            spent: list[tuple[frozenset[int], int]] = []
            for op in group:
                called, times = _called(op)
                own = list(self._parts(phase or _title(called), called, n_times * times))
                parts += own
                spent.append((_chips_of(op), sum(part.total_cycles for part in own)))
            yield from _hiding(parts, sum(cycles for _, cycles in spent) - _makespan(spent))

    def _parts(self, phase: str, graph: popxl.Graph, n_times: int) -> Iterator[ProgramPart]:
        """What a graph takes that runs so often: compiled whole if it only computes."""
        if self._is_plain(graph):
            cost = self._compiled(graph)
            cycles = cost.cycles
            yield ProgramPart(phase, _title(graph), "tiles", n_times, cycles, report=cost.report)
            return
        yield from self._own_parts(phase, graph, n_times)
        yield from self._runs(graph, n_times, phase)

    def _own_parts(self, phase: str, graph: popxl.Graph, n_times: int) -> Iterator[ProgramPart]:
        """Transfers of a graph, and operations that are not in graphs it calls."""
        name = _title(graph)
        if graph not in self.costs:
            own = [op for op in graph.ops if op.kind not in _NOT_COMPUTED]
            computes = any(op.kind != "Init" for op in own)
            self.costs[graph] = cost_of_operations(graph, own, self.options) if computes else None
        cost = self.costs[graph]
        moved = {e: self._transfer(e) for e in exchanges_of(graph)}
        hidden = self._hidden(graph, moved)
        if cost is not None:
            cycles = cost.cycles
            yield ProgramPart(phase, name, "tiles", n_times, cycles, report=cost.report)
        for exchange, cycles in moved.items():
            saved = min(hidden, cycles) if exchange.on_io_tiles else 0
            hidden -= saved
            yield ProgramPart(
                phase, name, exchange.kind, n_times, cycles, exchange.n_bytes, hidden_cycles=saved
            )

    def _hidden(self, graph: popxl.Graph, moved: dict[Exchange, int]) -> int:
        """How much of a graph's transfers runs while graphs that it calls compute."""
        if not self.options.n_io_tiles or not any(e.on_io_tiles for e in moved):
            return 0
        runs = {op: self._cycles_of_run(op) for op in graph.ops if op.kind in RUNS_GRAPHS}
        return hidden_cycles(graph, moved, runs)

    def _cycles_of_run(self, op: Op) -> int:
        """What a call or a loop takes in all."""
        called, times = _called(op)
        if called not in self.totals:
            self.totals[called] = sum(p.total_cycles for p in self._parts("", called, 1))
        return times * self.totals[called]

    def _compiled(self, graph: popxl.Graph) -> TileCost:
        cost = self.costs.get(graph)
        if cost is None:
            cost = self.costs[graph] = cost_of_graph(graph, self.options)
        return cost

    def _is_plain(self, graph: popxl.Graph) -> bool:
        """Whether a graph only computes, on one chip: no loop, no transfer, nor do those called."""
        if graph not in self.is_plain:
            kinds = {op.kind for op in graph.ops}
            is_plain = len(_chips(graph)) < 2 and not kinds & (_NOT_COMPUTED - {"Call"})
            self.is_plain[graph] = is_plain and all(map(self._is_plain, graph.called_graphs))
        return self.is_plain[graph]

    def _transfer(self, exchange: Exchange) -> int:
        """Cycles of a copy between tiles and memory next to them, or the host."""
        n_bytes, n_io = exchange.n_bytes, self.options.n_io_tiles
        key = exchange.kind, n_bytes, exchange.on_io_tiles
        if key not in self.transfers:
            graph = Graph(self.target, self.ir.replication_factor)
            tiles = graph
            if n_io:
                end = self.target.tiles_per_ipu
                own = (end - n_io, end) if exchange.on_io_tiles else (0, end - n_io)
                tiles = graph.create_virtual_graph(*own)
            data = tiles.add_variable(CHAR, [n_bytes], "data", mapping="linear")
            if exchange.kind == "host":
                source = graph.add_host_to_device_fifo("stream", CHAR, n_bytes)
            else:
                source = graph.add_remote_buffer("buffer", CHAR, n_bytes, 1)
            program = Sequence(Copy(source, data))
            cost = cost_of_program_on_tiles("transfer", graph, program, self.options)
            self.transfers[key] = cost.report.total_cycles
        return self.transfers[key]


def _called(op: Op) -> tuple[popxl.Graph, int]:
    """The graph that an operation runs, and how often; of a branch, the first."""
    return op.graphs[0], op.attributes.get("repeat_count", 1)


def _title(graph: popxl.Graph) -> str:
    return graph.name.split("_subgraph(")[0] or "main"


def _chips(graph: popxl.Graph) -> frozenset[int]:
    """The chips of a replica that a graph runs on, and those that it calls."""
    return frozenset().union(*map(_chips_of, graph.ops))


def _chips_of(op: Op) -> frozenset[int]:
    """A graph that was made without naming a chip runs on that of its call."""
    if op.kind in RUNS_GRAPHS:
        called = frozenset().union(*map(_chips, op.graphs))
        if called - {0}:
            return called
    return frozenset({op.ipu})


def _independent(graph: popxl.Graph) -> list[list[Op]]:
    """Calls and loops of a graph, in order; neighbours that need nothing from each other together.

    Those on one chip follow each other all the same.
    """
    groups: list[list[Op]] = []
    made: set[popxl.Tensor] = set()  # by the group, or written
    touched: set[popxl.Tensor] = set()
    for op in graph.ops:
        if op.kind not in RUNS_GRAPHS:
            if made.intersection(op.inputs):  # what is computed of a group's results waits for it
                made.update(op.outputs)
            continue
        written = {op.inputs[i] for i in modified_inputs(op)}
        if not groups or made.intersection(op.inputs) or touched & written:
            groups.append([])
            made, touched = set(), set()
        groups[-1].append(op)
        made |= {*op.outputs, *written}
        touched |= set(op.inputs)
    return groups


def _makespan(spent: list[tuple[frozenset[int], int]]) -> int:
    """How long graphs take that start one after another, as soon as their chips are free."""
    free: dict[int, int] = {}
    for chips, cycles in spent:
        end = max((free.get(chip, 0) for chip in chips), default=0) + cycles
        free.update(dict.fromkeys(chips or {0}, end))
    return max(free.values(), default=0)


def _hiding(parts: list[ProgramPart], cycles: int) -> Iterator[ProgramPart]:
    """The parts, with n cycles of them hidden behind others."""
    for part in parts:
        saved = min(cycles, part.total_cycles) // max(part.n_times, 1)
        cycles -= saved * part.n_times
        yield replace(part, hidden_cycles=part.hidden_cycles + saved) if saved else part


def bytes_by_kind(links: dict[str, int]) -> dict[str, int]:
    """What links of each kind carry together: IPU-Link, PCIe, GW-Link."""
    result: dict[str, int] = {}
    for name, n_bytes in links.items():
        kind = name.split()[0]
        result[kind] = result.get(kind, 0) + n_bytes
    return result


def tile_share(report: ProgramReport) -> float:
    """How much of the fullest tile's memory a graph needs."""
    return float(np.max(report.tiles.n_bytes)) / report.chip.n_bytes_per_tile

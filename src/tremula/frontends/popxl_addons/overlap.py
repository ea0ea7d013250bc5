"""Which transfers of a graph run while it computes.

Tiles that are set aside for I/O load and store while the others compute, as far as data, writes in
place and `in_sequence` allow. A graph's operations are put on a time line twice, in the order they
were made: once with all tiles waiting for transfers, once with I/O tiles working on their own. The
difference is hidden:

    one after the other   load i    call      store i - 2
    I/O tiles             load i  · store i - 2
    the others            call ·········
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import popxl
from tremula.frontends.popxl.core.call_site import modified_inputs
from tremula.frontends.popxl.core.op import TRANSFERS, Op

RUNS_GRAPHS = {"Call", "Loop", "If"}
IO = -1  # beside the numbers of chips


@dataclass(frozen=True)
class Exchange:
    """Transfers that move together: one, or those that were merged."""

    kind: str  # "streaming memory" or "host"
    on_io_tiles: bool
    ops: tuple[Op, ...]

    @property
    def n_bytes(self) -> int:
        moved = [op.outputs[0] if op.outputs else _stored(op) for op in self.ops]
        return sum(t.nelms * t.dtype.n_bytes for t in moved)


def exchanges_of(graph: popxl.Graph) -> list[Exchange]:
    """All exchanges of a graph, in order."""
    result: dict[tuple[str, object, bool], list[Op]] = {}
    for number, op in enumerate(graph.ops):
        if op.kind in TRANSFERS:
            together = op.attributes.get("exchange", -1 - number)
            key = (_other_side(op), together, op.tile_set == "io")
            result.setdefault(key, []).append(op)
    return [Exchange(kind, on_io, tuple(ops)) for (kind, _, on_io), ops in result.items()]


def _other_side(op: Op) -> str:
    return "host" if op.kind.startswith("Host") else "streaming memory"


def _stored(op: Op) -> popxl.Tensor:
    """The tensor that a store sends: the largest operand, beside the number of an entry."""
    return max(op.inputs, key=lambda t: t.nelms)


def hidden_cycles(
    graph: popxl.Graph, exchanges: Mapping[Exchange, int], runs: Mapping[Op, int]
) -> int:
    """Cycles of exchanges on I/O tiles that pass while graphs are run.

    `exchanges` and `runs` say what each exchange, and each operation that runs a graph, takes.
    """
    line = _TimeLine(graph, exchanges, runs)
    return line.length(overlaps=False) - line.length(overlaps=True)


@dataclass(frozen=True)
class _Unit:
    """Operations that happen at once, and what they keep busy: chips, or their I/O tiles."""

    ops: tuple[Op, ...]
    cycles: int = 0
    busy: frozenset[int] = frozenset()
    on_io_tiles: bool = False


@dataclass
class _TimeLine:
    graph: popxl.Graph
    exchanges: Mapping[Exchange, int]
    runs: Mapping[Op, int]
    units: list[_Unit] = field(init=False)  # in the order of their last operations
    waits_for: list[set[int]] = field(init=False)  # units, for each unit

    def __post_init__(self) -> None:
        place = {op: i for i, op in enumerate(self.graph.ops)}
        chips = frozenset(op.ipu for op in self.graph.ops)
        units = [_Unit(e.ops, cycles, chips, e.on_io_tiles) for e, cycles in self.exchanges.items()]
        single = {op for unit in units for op in unit.ops}
        for op in self.graph.ops:
            if op not in single:
                cycles = self.runs.get(op, 0)
                units.append(_Unit((op,), cycles, frozenset({op.ipu}) if cycles else frozenset()))
        self.units = sorted(units, key=lambda unit: place[unit.ops[-1]])
        number = {op: i for i, unit in enumerate(self.units) for op in unit.ops}
        needed = _needed(self.graph.ops)
        self.waits_for = [
            {number[other] for op in unit.ops for other in needed[op]} - {i}
            for i, unit in enumerate(self.units)
        ]

    def length(self, *, overlaps: bool) -> int:
        """When the last unit ends; each begins as soon as those it needs, and its tiles, allow."""
        free: dict[int, int] = {}
        ends = [0] * len(self.units)
        for i in self._order():
            unit = self.units[i]
            busy = frozenset({IO}) if unit.on_io_tiles and overlaps else unit.busy
            begin = max(
                (*(ends[j] for j in self.waits_for[i]), *(free.get(tiles, 0) for tiles in busy)),
                default=0,
            )
            ends[i] = begin + unit.cycles
            free.update(dict.fromkeys(busy, ends[i]))
        return max(ends, default=0)

    def _order(self) -> Iterable[int]:
        """Units, each behind those it waits for; else as the operations were made."""
        left = [len(waits) for waits in self.waits_for]
        followers: list[list[int]] = [[] for _ in self.units]
        for i, waits in enumerate(self.waits_for):
            for j in waits:
                followers[j].append(i)
        ready = [i for i, n in enumerate(left) if n == 0]
        heapify(ready)
        waiting = set(range(len(self.units)))
        while waiting:
            # Merged transfers may wait for themselves: they begin when nothing else can.
            i = heappop(ready) if ready else min(waiting)
            if i not in waiting:
                continue
            waiting.remove(i)
            yield i
            for j in followers[i]:
                left[j] -= 1
                if left[j] == 0:
                    heappush(ready, j)


def _needed(operations: Iterable[Op]) -> dict[Op, set[Op]]:
    """Operations that must have run before each: by data, by writes in place, by order."""
    needed: dict[Op, set[Op]] = {}
    writer: dict[popxl.Tensor, Op] = {}
    readers: dict[popxl.Tensor, list[Op]] = {}
    for op in operations:
        result = {other for other in op.after if other in needed}
        result.update(writer[t] for t in op.inputs if t in writer)
        for t in _written(op):
            result.update(readers.get(t, ()))
        for t in op.inputs:
            readers.setdefault(t, []).append(op)
        for t in (*op.outputs, *_written(op)):
            writer[t] = op
        needed[op] = result - {op}
    return needed


def _written(op: Op) -> list[popxl.Tensor]:
    """Inputs that an operation writes in place."""
    places = modified_inputs(op) if op.kind in {"Call", "Loop"} else op.modified()
    return [op.inputs[i] for i in places]

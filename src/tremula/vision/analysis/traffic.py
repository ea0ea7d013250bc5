"""Bytes between tiles of a report: per step or of everything that ran, from its tile program."""

from dataclasses import dataclass
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np

from tremula.compiler.program_ir import HOST_KINDS, StepKind
from tremula.compiler.report.traffic import PairTraffic, TrafficOfSteps, joined
from tremula.vision.report.reader import ReportReader

Ints = np.ndarray
MAX_ROUTES = 1000  # that are listed: a program of 1,472 tiles may have two million
_N_AT_ONCE = 64  # different steps that are added up together


@dataclass(frozen=True, slots=True)
class TileTraffic:
    """Bytes from tile to tile, and what tiles exchange with the host or other replicas."""

    pairs: PairTraffic
    from_outside: Ints  # int64[n_tiles]
    to_outside: Ints

    @property
    def n_bytes(self) -> int:
        return int(self.pairs.n_bytes.sum())


def traffic(reader: ReportReader, step: int | None = None) -> dict[str, object]:
    """Bytes between tiles of one execution of a step, or of everything that ran; busiest first."""
    if step is not None:
        reader.check_step(step)
    moved = total_traffic(reader) if step is None else step_traffic(reader, step)
    source, destination, n_bytes = (column.tolist() for column in moved.pairs)
    order = sorted(range(len(n_bytes)), key=lambda i: -n_bytes[i])
    return {
        "step": step,
        "path": None if step is None else reader.table("steps")["path"][step],
        "n_bytes": moved.n_bytes,
        "n_routes": len(n_bytes),
        "from_outside": int(moved.from_outside.sum()),
        "to_outside": int(moved.to_outside.sum()),
        "routes": [
            {
                "from": reader.tile_name(source[i]),
                "to": reader.tile_name(destination[i]),
                "n_bytes": n_bytes[i],
            }
            for i in order[:MAX_ROUTES]
        ],
    }


_PROGRAMS: "WeakKeyDictionary[ReportReader, TrafficOfSteps]" = WeakKeyDictionary()
_LOCK = Lock()  # threads of the page's server ask for one report


def step_traffic(reader: ReportReader, step: int) -> TileTraffic:
    """What one execution of a step moves."""
    with _LOCK:
        pairs = _program(reader).of_step(step)
    return TileTraffic(pairs, *_outside(reader, step))


def total_traffic(reader: ReportReader) -> TileTraffic:
    """What everything that ran moves: each step as often as it was executed."""
    executed = np.maximum(reader.table("steps")["executed"], 0)
    n_of_row: dict[int, list[int]] = {}  # steps that move alike: the first, and executions of all
    incoming, outgoing = np.zeros((2, reader.n_tiles), np.int64)
    with _LOCK:
        program = _program(reader)
        rows = program.executable.analysis.exchanges.row_of_step.tolist()
        for step, (row, times) in enumerate(zip(rows, executed.tolist(), strict=True)):
            if row >= 0 and times:
                n_of_row.setdefault(row, [step, 0])[1] += times
        total, waiting = joined([]), []
        for step, times in n_of_row.values():
            source, destination, n_bytes = program.of_step(step)
            waiting.append(PairTraffic(source, destination, n_bytes * times))
            if len(waiting) == _N_AT_ONCE:
                total, waiting = joined([total, *waiting]), []
            received, sent = _outside(reader, step)
            incoming += received * times
            outgoing += sent * times
    return TileTraffic(joined([total, *waiting]), incoming, outgoing)


def _program(reader: ReportReader) -> TrafficOfSteps:
    if reader not in _PROGRAMS:
        _PROGRAMS[reader] = TrafficOfSteps(reader.kept_executable)
    return _PROGRAMS[reader]


def _outside(reader: ReportReader, step: int) -> tuple[Ints, Ints]:
    """int64[n_tiles] bytes from and to the host or other replicas, in one execution."""
    executable = reader.kept_executable
    moved = executable.analysis.exchanges.of_step(step).before
    kind = executable.steps[step].kind
    if moved is None or not (kind in HOST_KINDS or kind is StepKind.CROSS_REPLICA):
        return np.zeros(reader.n_tiles, np.int64), np.zeros(reader.n_tiles, np.int64)
    return moved.received, moved.sent

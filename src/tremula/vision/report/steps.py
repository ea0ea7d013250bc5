"""The steps of a report: what each takes on each chip and on each tile."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tremula.compiler.executable.records import StepRecord
from tremula.compiler.report.phases import PHASES
from tremula.vision.report.contents import Columns, Contents
from tremula.vision.report.schema import ROWS_PER_BLOCK

Ints = np.ndarray

_EXCHANGE = PHASES.index("exchange")

# Poplar's names for kinds of step; ours stay where it has none.
_TYPES = {
    "StreamCopyIn": "StreamCopyMid", "StreamCopyOut": "StreamCopyMid",
    "RemoteRead": "StreamCopyMid", "RemoteWrite": "StreamCopyMid",
    "CrossReplicaCopy": "GlobalExchange", "CycleStamp": "Sync",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepMeasures:
    """Of each step on each chip, [n_steps, n_chips]."""

    n_active: Ints
    balance: Ints  # mean ÷ largest compute of all tiles
    active_balance: Ints  # of tiles that compute
    critical: Ints  # the tile that is busy longest, numbered across chips; -1 for none
    received: Ints  # bytes
    sent: Ints


def _types(contents: Contents) -> list[str]:
    links = (contents.measured.phases[:, :, PHASES.index("links")].max(axis=1) > 0).tolist()
    types = [_TYPES.get(s.kind.value, s.kind.value) for s in contents.executable.steps]
    pairs = zip(types, links, strict=True)
    return ["GlobalExchange" if t == "DoExchange" and link else t for t, link in pairs]


def step_columns(
    contents: Contents, program_of: Ints, measures: StepMeasures, live: tuple[Ints, Ints]
) -> Columns:
    """All steps; `live` is their temporary bytes: of all tiles, and of the fullest one."""
    steps, report, measured = contents.executable.steps, contents.report.steps, contents.measured
    cycles = measured.phases.sum(axis=2)
    at = (np.arange(len(steps)), cycles.argmax(axis=1))
    on_path = measured.of_step.sum(axis=1)
    names = ["/".join((*s.path, _name_of(s))) for s in steps]
    contexts = [
        contents.contexts.add(name, s.source, "program")
        for name, s in zip(names, steps, strict=True)
    ]
    executed = report.executed
    return {
        "id": np.arange(len(steps)),
        "name": [s.name for s in steps],
        "kind": [s.kind.value for s in steps],
        "type": _types(contents),
        "path": names,
        "program": program_of,
        "compute_set": [s.compute_set for s in steps],
        "debug_context": contexts,
        "source": [s.source for s in steps],
        "instruction": contents.instruction_of_step,
        "executed": executed,
        "is_known": report.is_known.astype(np.int64),
        "is_counted": contents.analysis.costs.needs_count.astype(np.int64),
        "stage": _stages(contents),
        **{name: measured.phases[:, :, i][at] for i, name in enumerate(PHASES)},
        "cycles": cycles[at],
        "total_cycles": on_path.sum(axis=1),
        **{f"path_{name}": on_path[:, i] for i, name in enumerate(PHASES)},
        "busy_cycles": measured.busy.sum(axis=(1, 2)),
        "n_flops": contents.analysis.costs.n_flops,
        "peak_cycles": contents.analysis.costs.peak_cycles,
        "n_active_tiles": report.n_active_tiles,
        "balance": measures.balance[at],
        "active_balance": report.balance,
        "critical_tile": measures.critical[at],
        "bytes_in": measures.received.sum(axis=1),
        "bytes_out": measures.sent.sum(axis=1),
        "temporary_bytes": live[0],
        "largest_temporary": live[1],
    }


def _stages(contents: Contents) -> Ints:
    """int64[n_steps]: the stage of a pipeline that runs each step; -1 for none."""
    columns, result = contents.routes.columns, np.full(len(contents.executable.steps), -1, np.int64)
    for context in np.flatnonzero(columns["stage_of_context"] >= 0).tolist():
        first, last = contents.steps_of_context(context)
        result[first:last] = columns["stage_of_context"][context]
    return result


def chip_columns(contents: Contents, measures: StepMeasures) -> Columns:
    costs, measured = contents.analysis.costs, contents.measured
    n_steps, n_chips = costs.sync.shape
    flat = {
        **{name: measured.phases[:, :, i] for i, name in enumerate(PHASES)},
        "cycles": measured.phases.sum(axis=2),
        "path_cycles": measured.of_step.sum(axis=2),
        "total_compute": measured.busy[:, :, 0],
        "is_active": costs.is_active.astype(np.int64),
        "joins": np.repeat(costs.joins[:, None], n_chips, axis=1).astype(np.int64),
        "active_tiles": measures.n_active,
        "tile_balance": measures.balance,
        "active_tile_balance": measures.active_balance,
        "critical_tile": measures.critical,
        "data_in": measures.received,
        "data_out": measures.sent,
    }
    return {
        "step_id": np.repeat(np.arange(n_steps), n_chips),
        "replica": np.zeros(n_steps * n_chips, np.int64),
        "ipu": np.tile(np.arange(n_chips), n_steps),
        **{name: column.reshape(-1) for name, column in flat.items()},
    }


def _name_of(step: StepRecord) -> str:
    """A step's name; a copy without one is named after the stream, buffer or function it uses."""
    handle = step.detail.get("handle") if isinstance(step.detail, dict) else None
    return f"{step.name} {handle}" if handle and step.name in ("Copy", "Call") else step.name


def step_blocks(n_steps: int) -> Iterator[Ints]:
    for first in range(0, n_steps, ROWS_PER_BLOCK):
        yield np.arange(first, min(n_steps, first + ROWS_PER_BLOCK))


def compute_rows(contents: Contents, steps: Ints) -> Ints:
    """int64[n, n_tiles]: compute cycles of one execution of each of some steps."""
    costs = contents.analysis.costs
    rows = costs.compute_tiles[costs.tile_row[steps]]
    for at, step in enumerate(steps.tolist() if contents.execution.counted else ()):
        if step in contents.execution.counted:
            rows[at] = contents.execution.counted[step].tile_cycles
    return rows


def exchange_rows(contents: Contents, steps: Ints) -> Ints:
    """int64[n, n_tiles]: the same for exchange, which never takes longer than the chip's."""
    costs, on_chip = contents.analysis.costs, contents.measured.phases[steps, :, _EXCHANGE]
    of_chip = np.repeat(on_chip, contents.n_tiles // contents.n_chips, axis=1)
    return np.minimum(costs.exchange_tiles[costs.tile_row[steps]], of_chip)


def measures_of(contents: Contents) -> StepMeasures:
    """Block by block, as steps × tiles may be large."""
    shape = (-1, contents.n_chips, contents.n_tiles // contents.n_chips)
    parts = [
        _balance(
            compute_rows(contents, block).reshape(shape),
            exchange_rows(contents, block).reshape(shape),
        )
        for block in step_blocks(len(contents.executable.steps))
    ]
    nothing = np.zeros((0, contents.n_chips))
    columns = zip(*parts, strict=True) if parts else [[nothing]] * 4
    n_active, balance, active, critical = (np.concatenate(column) for column in columns)
    return StepMeasures(n_active, balance, active, critical, *_data_moved(contents))


def _data_moved(contents: Contents) -> tuple[Ints, Ints]:
    """int64[n_steps, n_chips]: bytes tiles receive and send."""
    exchanges = contents.analysis.exchanges
    moved = np.zeros((2, len(exchanges.distinct) + 1, contents.n_chips), np.int64)
    for row, exchange in enumerate(exchanges.distinct):
        for phase in (exchange.before, exchange.after):
            if phase is not None:
                moved[0, row] += phase.received.reshape(contents.n_chips, -1).sum(axis=1)
                moved[1, row] += phase.sent.reshape(contents.n_chips, -1).sum(axis=1)
    rows = moved[:, exchanges.row_of_step]  # row -1 is the last, empty one
    return rows[0], rows[1]


def _balance(compute: Ints, exchange: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Of int64[n, n_chips, n_tiles] cycles."""
    n_active = (compute > 0).sum(axis=2)
    largest, total = compute.max(axis=2), compute.sum(axis=2)
    most = np.maximum(largest, 1)
    balance = np.where(largest > 0, total / (most * compute.shape[2]), 1.0)
    active = np.where(largest > 0, total / (most * np.maximum(n_active, 1)), 1.0)
    busy = compute + exchange
    first_tile = np.arange(compute.shape[1]) * compute.shape[2]
    critical = np.where(busy.max(axis=2) > 0, busy.argmax(axis=2) + first_tile, -1)
    return n_active, balance, active, critical

"""The variables of a report: sizes, tiles, addresses, and when they live."""

import json
from collections.abc import Iterator

import numpy as np

from tremula.compiler.passes.memory import addresses_of
from tremula.vision.report.contents import Columns, Contents
from tremula.vision.report.schema import ROWS_PER_BLOCK

Ints = np.ndarray


def variables(contents: Contents) -> Columns:
    records, live = contents.executable.variables, contents.analysis.liveness
    n = len(records.names)
    owner = np.repeat(np.arange(n), np.diff(live.tile_start))
    largest = np.zeros(n, np.int64)
    np.maximum.at(largest, owner, live.tile_bytes)
    first, last = _step_ranges(contents, n)
    contexts = [
        contents.contexts.add(name, source, "variable")
        for name, source in zip(records.names, records.sources, strict=True)
    ]
    return {
        "id": np.arange(n),
        "name": records.names,
        "type": records.type_names,
        "shape": [json.dumps(list(shape)) for shape in records.shapes],
        "n_bytes": np.bincount(owner, live.tile_bytes, n).astype(np.int64),
        "n_elements": [int(np.prod(shape, dtype=np.int64)) for shape in records.shapes],
        "n_tiles": np.diff(live.tile_start),
        "largest_on_tile": largest,
        "is_constant": records.is_constant.astype(np.int64),
        "always_live": live.always_live.astype(np.int64),
        "is_used": live.is_used.astype(np.int64),
        "first_step": first,
        "last_step": last,
        "debug_context": contexts,
        "source": records.sources,
    }


def _step_ranges(contents: Contents, n: int) -> tuple[Ints, Ints]:
    """int64[n_variables]: first and last step at which a temporary variable lives, else -1."""
    live, at = contents.analysis.liveness, contents.instruction_of_step
    first, last = np.full(n, np.iinfo(np.int64).max), np.full(n, -1, np.int64)
    np.minimum.at(first, live.range_variable, np.searchsorted(at, live.range_first))
    np.maximum.at(last, live.range_variable, np.searchsorted(at, live.range_last, side="right") - 1)
    first[last < 0] = -1
    return first, last


def variable_columns(contents: Contents) -> dict[str, Ints]:
    live = contents.analysis.liveness
    return {
        "variable.tile_start": live.tile_start,
        "variable.tile": live.tile,
        "variable.tile_bytes": live.tile_bytes,
        "variable.always_live": live.always_live.astype(np.int64),
        "live.variable": live.range_variable,
        "live.first": live.range_first,
        "live.last": live.range_last,
    }


def tile_variables(contents: Contents) -> tuple[Ints, Ints, Ints, Ints]:
    """The same by tile: where each tile's entries start, variables, bytes, addresses."""
    live = contents.analysis.liveness
    owner = np.repeat(np.arange(len(live.tile_start) - 1), np.diff(live.tile_start))
    # Sorting small unsigned numbers is linear.
    order = np.argsort(live.tile.astype(np.uint16 if contents.n_tiles < 65_536 else np.uint32),
                       kind="stable")  # fmt: skip
    start = np.searchsorted(live.tile[order], np.arange(contents.n_tiles + 1))
    address = addresses_of(contents.analysis.memory, live, contents.executable.target.chip)
    return start, owner[order], live.tile_bytes[order], address[order]


def live_blocks(contents: Contents) -> Iterator[Ints]:
    """Blocks of int64[64, n_tiles]: temporary bytes at each step, buffers included."""
    live, exchanges = contents.analysis.liveness, contents.analysis.exchanges
    by_last = np.argsort(live.range_last, kind="stable")
    now = np.zeros(contents.n_tiles, np.int64)
    first, last = 0, 0  # ranges begun, ranges ended
    begins, ends = live.range_first, live.range_last[by_last]
    start = live.tile_start
    rows: list[Ints] = []
    for step, instruction in enumerate(contents.instruction_of_step.tolist()):
        n_begun = np.searchsorted(begins, instruction, side="right")
        n_ended = np.searchsorted(ends, instruction, side="left")
        for v in live.range_variable[first:n_begun].tolist():
            now[live.tile[start[v] : start[v + 1]]] += live.tile_bytes[start[v] : start[v + 1]]
        for v in live.range_variable[by_last[last:n_ended]].tolist():
            now[live.tile[start[v] : start[v + 1]]] -= live.tile_bytes[start[v] : start[v + 1]]
        first, last = int(n_begun), int(n_ended)
        buffers = exchanges.of_step(step).buffer_bytes
        rows.append(now.copy() if buffers is None else now + buffers)
        if len(rows) == ROWS_PER_BLOCK:
            yield np.stack(rows)
            rows = []
    if rows:
        yield np.stack(rows)

"""The compute sets, vertex types and vertices of a report."""

import numpy as np

from tremula.vision.report.contents import Columns, Contents

Ints = np.ndarray


def compute_sets(contents: Contents) -> Columns:
    sets, costs = contents.executable.compute_sets, contents.analysis.costs
    executed = np.zeros(len(sets), np.int64)
    used = costs.compute_set_of_step >= 0
    np.add.at(executed, costs.compute_set_of_step[used], contents.execution.executed[used])
    totals = _table_cycles(contents)
    return {
        "id": np.arange(len(sets)),
        "name": [s.name for s in sets],
        "source": [s.source for s in sets],
        "n_vertices": [sum(t.n_rows for t in s.tables) for s in sets],
        "n_tiles": [
            len(np.unique(np.concatenate([t.tile for t in s.tables]))) if s.tables else 0
            for s in sets
        ],
        "n_flops": [sum(t.n_flops for t in costs.compute_sets[i].tables) for i in range(len(sets))],
        "cycles": [sum(tables) * int(executed[i]) for i, tables in enumerate(totals)],
    }


def _table_cycles(contents: Contents) -> list[list[int]]:
    """Vertex cycles of one execution of each table of each compute set."""
    costs = contents.analysis.costs
    found = [[max(0, table.total_cycles) for table in s.tables] for s in costs.compute_sets]
    for step, counted in contents.execution.counted.items():
        number = int(costs.compute_set_of_step[step])
        for i, cycles in enumerate(counted.table_cycles):
            if cycles >= 0:
                found[number][i] = int(cycles)
    return found


def vertex_types(contents: Contents) -> Columns:
    rows = contents.report.vertex_types
    state = contents.report.memory.vertices.bytes_of_type
    return {
        "id": np.arange(len(rows)),
        "name": [r.codelet for r in rows],
        "n_vertices": [r.n_vertices for r in rows],
        "cycles": [r.cycles for r in rows],
        "standing": [r.standing for r in rows],
        "code_bytes": [r.n_code_bytes for r in rows],
        "state_bytes": [state.get(r.codelet, 0) for r in rows],
    }


def vertices(contents: Contents) -> tuple[Columns, dict[str, Ints]]:
    """Rows per table, and a CSR of how many vertices each has on which tile."""
    number_of_type = {r.codelet: i for i, r in enumerate(contents.report.vertex_types)}
    costs, totals = contents.analysis.costs, _table_cycles(contents)
    rows, tiles, counts = [], [], []
    for number, compute_set in enumerate(contents.executable.compute_sets):
        for i, table in enumerate(compute_set.tables):
            name = contents.executable.codelets[table.codelet].spec.name
            flops = costs.compute_sets[number].tables[i].n_flops
            row = (number, number_of_type[name], table.n_rows, flops, totals[number][i])
            rows.append((len(rows), *row))
            tile, count = np.unique(table.tile, return_counts=True)
            tiles.append(tile)
            counts.append(count)
    names = ("id", "compute_set", "vertex_type", "n_vertices", "n_flops", "cycles")
    columns: Columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    nothing = np.empty(0, np.int64)
    start = np.cumsum([0, *(len(t) for t in tiles)])
    csr = {
        "vertices.start": start.astype(np.int64),
        "vertices.tile": np.concatenate([nothing, *tiles]),
        "vertices.count": np.concatenate([nothing, *counts]),
    }
    return columns, csr

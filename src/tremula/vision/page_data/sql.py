"""What the SQL view fetches: a report's tables, examples, and the answer to a query."""

import math
import time

from tremula.vision.page_data.pack import pack_of
from tremula.vision.report.query import MAX_ROWS
from tremula.vision.report.reader import ReportReader

# What a row of each table is; tables with packed columns, which SQL cannot read, are not listed.
ABOUT = {
    "steps": "a static step; cycles are of one execution on the slowest chip",
    "steps_by_ipu": "a step on a chip",
    "programs": "a node of a program tree; those without parent (-1) are the programs",
    "compute_sets": "a compute set",
    "vertices": "a codelet in a compute set",
    "vertex_types": "a codelet",
    "variables": "a variable",
    "tiles": "a tile; cycles are of everything that ran",
    "ipus": "a chip",
    "categories": "a kind of memory, all tiles",
    "runs": "a run of a program",
    "debug_contexts": "a part of a name",
    "info": "a fact, as JSON",
    "target": "a constant of the machine, as JSON",
    "options": "an option of the engine",
    "versions": "a version",
}

EXAMPLES = {
    "Steps that wait for one tile": """
SELECT id AS step, path, cycles, executed, round(active_balance, 2) AS balance,
       critical_tile AS tile
FROM steps
WHERE compute > 0
ORDER BY (1 - active_balance) * total_cycles DESC
LIMIT 50""",
    "Cycles by kind of vertex": """
SELECT t.name, sum(v.n_vertices) AS vertices, t.cycles, t.code_bytes
FROM vertices v JOIN vertex_types t ON t.id = v.vertex_type
GROUP BY t.id
ORDER BY t.cycles DESC""",
    "Memory by type": """
SELECT type, count(*) AS variables, sum(n_bytes) AS bytes,
       sum(CASE WHEN always_live THEN n_bytes END) AS always_live
FROM variables
GROUP BY type
ORDER BY bytes DESC""",
    "The fullest tiles": """
SELECT ipu, tile, including_gaps AS bytes, always_live, temporary, peak_step AS step
FROM tiles
ORDER BY including_gaps DESC
LIMIT 50""",
    "What moves most data": """
SELECT id AS step, path, bytes_in * executed AS bytes, exchange * executed AS cycles,
       round(1.0 * bytes_in / nullif(exchange, 0), 1) AS bytes_per_cycle
FROM steps
WHERE bytes_in > 0
ORDER BY bytes DESC
LIMIT 50""",
    "Cycles by line of the program": """
SELECT source, count(*) AS steps, sum(total_cycles) AS cycles
FROM steps
GROUP BY source
ORDER BY cycles DESC""",
}


def schema_pack(reader: ReportReader) -> bytes:
    """Tables with their columns and number of rows, and examples to begin with."""
    tables = []
    for name, about in ABOUT.items():
        columns = reader.execute(f"PRAGMA table_info({name})")
        ((n_rows,),) = reader.execute(f"SELECT count(*) FROM {name}")
        listed = [{"name": column, "type": kind} for _, column, kind, *_ in columns]
        tables.append({"name": name, "about": about, "n_rows": n_rows, "columns": listed})
    examples = [{"title": title, "sql": sql.strip()} for title, sql in EXAMPLES.items()]
    return pack_of({"tables": tables, "examples": examples})


def answer_pack(reader: ReportReader, sql: str) -> bytes:
    """Names and rows of a query; says whether there are more, and how long it took."""
    begin = time.monotonic()
    names, rows = reader.query(sql)
    facts = {
        "names": names,
        "rows": [[_shown(value) for value in row] for row in rows],
        "is_cut": len(rows) >= MAX_ROWS,
        "seconds": round(time.monotonic() - begin, 3),
    }
    return pack_of(facts)


def _shown(value: bytes | str | float | None) -> str | int | float | None:
    if isinstance(value, bytes):
        return f"({len(value):,} bytes)"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value

"""The tables of a report file, and the versions of their schema."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

APPLICATION = "tremula report"
FILE_NAME = "profile.pop"
_MOST_NAMED = 6  # reports that an error lists
# A newer major version is an error; a newer minor version only adds tables or columns.
SCHEMA_VERSION = (2, 1)
ROWS_PER_BLOCK = 64
# How many rows of level 0 a row of level 1 pools, and how many of the level below at later levels.
FIRST_POOL, NEXT_POOL = 8, 4
# A level with this few rows is the last: a screen can show them all.
COARSEST_ROWS = 256

_NAMED = "name TEXT PRIMARY KEY, value TEXT"

TABLES: Mapping[str, str] = MappingProxyType(
    {
        "info": "key TEXT PRIMARY KEY, value TEXT",
        "target": "key TEXT PRIMARY KEY, value TEXT",
        "options": _NAMED,
        "versions": _NAMED,
        "programs": """id INTEGER PRIMARY KEY, parent INTEGER, place INTEGER, kind TEXT, name TEXT,
            n_times INTEGER, step INTEGER, source TEXT, root TEXT, depth INTEGER,
            total_cycles INTEGER, path_compute INTEGER, path_exchange INTEGER, path_links INTEGER,
            path_host INTEGER, path_sync INTEGER""",
        "steps": """id INTEGER PRIMARY KEY, name TEXT, kind TEXT, type TEXT, path TEXT,
            program INTEGER, compute_set INTEGER, debug_context INTEGER, source TEXT,
            instruction INTEGER, executed INTEGER, is_known INTEGER, is_counted INTEGER,
            stage INTEGER, compute INTEGER, exchange INTEGER, links INTEGER, host INTEGER,
            sync INTEGER, cycles INTEGER, total_cycles INTEGER, path_compute INTEGER,
            path_exchange INTEGER, path_links INTEGER, path_host INTEGER, path_sync INTEGER,
            busy_cycles INTEGER, n_flops INTEGER, peak_cycles INTEGER, n_active_tiles INTEGER,
            balance REAL, active_balance REAL, critical_tile INTEGER, bytes_in INTEGER,
            bytes_out INTEGER, temporary_bytes INTEGER, largest_temporary INTEGER""",
        "steps_by_ipu": """step_id INTEGER, replica INTEGER, ipu INTEGER, compute INTEGER,
            exchange INTEGER, links INTEGER, host INTEGER, sync INTEGER, cycles INTEGER,
            path_cycles INTEGER, total_compute INTEGER, is_active INTEGER, joins INTEGER,
            active_tiles INTEGER, tile_balance REAL, active_tile_balance REAL,
            critical_tile INTEGER, data_in INTEGER, data_out INTEGER,
            PRIMARY KEY (step_id, replica, ipu)""",
        "compute_sets": """id INTEGER PRIMARY KEY, name TEXT, source TEXT, n_vertices INTEGER,
            n_tiles INTEGER, n_flops INTEGER, cycles INTEGER, path_cycles INTEGER""",
        # `standing` is the provenance of a cost: files keep the name they began with.
        "vertex_types": """id INTEGER PRIMARY KEY, name TEXT, n_vertices INTEGER, cycles INTEGER,
            standing TEXT, code_bytes INTEGER, state_bytes INTEGER""",
        "vertices": """id INTEGER PRIMARY KEY, compute_set INTEGER, vertex_type INTEGER,
            n_vertices INTEGER, n_flops INTEGER, cycles INTEGER""",
        "variables": """id INTEGER PRIMARY KEY, name TEXT, type TEXT, shape TEXT, n_bytes INTEGER,
            n_elements INTEGER, n_tiles INTEGER, largest_on_tile INTEGER, is_constant INTEGER,
            always_live INTEGER, is_used INTEGER, first_step INTEGER, last_step INTEGER,
            debug_context INTEGER, source TEXT""",
        "debug_contexts": """id INTEGER PRIMARY KEY, parent INTEGER, name TEXT, path TEXT,
            layer TEXT, file TEXT, line INTEGER""",
        "tiles": """replica INTEGER, ipu INTEGER, tile INTEGER, x_mm REAL, y_mm REAL,
            always_live INTEGER, temporary INTEGER, excluding_gaps INTEGER,
            including_gaps INTEGER, region0 INTEGER, region1 INTEGER, overflowed INTEGER,
            peak_instruction INTEGER, peak_step INTEGER, compute INTEGER, busy INTEGER,
            exchange INTEGER, PRIMARY KEY (replica, ipu, tile)""",
        "ipus": """replica INTEGER, ipu INTEGER, cycles INTEGER, compute INTEGER,
            exchange INTEGER, links INTEGER, host INTEGER, sync INTEGER, waiting INTEGER,
            PRIMARY KEY (replica, ipu)""",
        "categories": """id INTEGER PRIMARY KEY, name TEXT, always_live INTEGER,
            temporary INTEGER""",
        "runs": """id INTEGER PRIMARY KEY, program INTEGER, name TEXT, first_entry INTEGER,
            n_entries INTEGER, times INTEGER, cycles_from INTEGER, cycles_to INTEGER,
            host_start_us INTEGER, host_end_us INTEGER""",
        "tile_variables": """tile INTEGER PRIMARY KEY, n_variables INTEGER, variable_dtype TEXT,
            variable BLOB, n_bytes_dtype TEXT, n_bytes BLOB, address_dtype TEXT, address BLOB""",
        "columns": "name TEXT PRIMARY KEY, dtype TEXT, shape TEXT, data BLOB",
        "matrices": """name TEXT PRIMARY KEY, n_rows INTEGER, n_columns INTEGER, pooling TEXT,
            unit TEXT, rows_per_level TEXT""",
        "blocks": """matrix TEXT, level INTEGER, number INTEGER, n_rows INTEGER, dtype TEXT,
            data BLOB, PRIMARY KEY (matrix, level, number)""",
        "executable": "n_bytes INTEGER, data BLOB",
    }
)

# Tables that `ReportReader.table` returns as columns; the others have separate accessors.
COLUMN_TABLES = (
    "programs", "steps", "steps_by_ipu", "compute_sets", "vertex_types", "vertices", "variables",
    "debug_contexts", "tiles", "ipus", "categories", "runs",
)  # fmt: skip


def report_path(path: str | os.PathLike[str]) -> Path:
    """The path of the report file: the path itself, or `profile.pop` in it if it is a folder."""
    path = Path(path)
    return path if path.suffix == ".pop" else path / FILE_NAME


def report_to_read(path: str | os.PathLike[str]) -> Path:
    """The report that a path names: a file, `profile.pop` of a folder, or the only one below it."""
    path = Path(path)
    if not path.is_dir():
        return path
    deeper = [] if report_path(path).exists() else _reports_below(path)
    return deeper[0] if len(deeper) == 1 else report_path(path)


def _reports_below(folder: Path) -> list[Path]:
    """Reports one level deeper: models and further engines of a run have separate folders."""
    return sorted(folder.glob(f"*/{FILE_NAME}"))


def reports_instead(path: Path) -> str:
    """The hint for a missing report."""
    deeper = [str(result.parent) for result in _reports_below(path.parent)]
    if path.name != FILE_NAME or not deeper:
        return "give a profile.pop, or the folder it is in"
    rest = ", …" if len(deeper) > _MOST_NAMED else ""
    return f"this folder has reports in {', '.join(deeper[:_MOST_NAMED])}{rest}: give one of them"


def pool_of_level(level: int) -> int:
    """How many rows of level 0 a row of a level pools."""
    return 1 if level == 0 else FIRST_POOL * NEXT_POOL ** (level - 1)


def column_names(table: str) -> list[str]:
    """The columns of a table, in order."""
    text = TABLES[table].split("PRIMARY KEY (")[0]
    return [part.split()[0] for part in text.split(",") if part.strip()]

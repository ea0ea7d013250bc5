"""What the Memory and Liveness views fetch: tiles, variables, lifetimes, one tile's contents."""

from weakref import WeakKeyDictionary

import numpy as np

from tremula.base.columns import coded
from tremula.hardware import chip_from_toml
from tremula.vision.analysis.operations import makers_of_variables
from tremula.vision.page_data.pack import pack_of
from tremula.vision.report.reader import ReportReader

Ints = np.ndarray

# The page lists this many variables, the largest; one line sums up the rest.
MOST_VARIABLES = 20_000
TILES_PER_PART, VARIABLES_PER_PART, STEPS_PER_PART = 16, 64, 16
_TILE_COLUMNS = (
    "ipu", "always_live", "temporary", "excluding_gaps", "including_gaps", "region0", "region1",
    "overflowed", "peak_step", "compute", "busy", "exchange",
)  # fmt: skip
_MOST_FREEING = 40
_VARIABLE_CATEGORIES = ("Variables", "Constants")


def tiles_pack(reader: ReportReader) -> bytes:
    """Every tile: bytes, cycles, place on the chip; and bytes by category × tile."""
    tiles, names = reader.table("tiles"), reader.table("categories")["name"]
    n = len(names)
    columns: dict[str, Ints] = {name: tiles[name] for name in _TILE_COLUMNS}
    columns |= {name: tiles[name].astype(np.float32) for name in ("x_mm", "y_mm")}
    columns["category_always_live"] = reader.matrix("always_live").rows(0, n).reshape(-1)
    columns["category_temporary"] = reader.matrix("temporary").rows(0, n).reshape(-1)
    facts = {
        "available": int(reader.info["available_bytes"]),
        "n_tiles": reader.n_tiles,
        "tiles_per_ipu": reader.tiles_per_ipu,
        "n_ipus": reader.n_ipus,
        "categories": names,
        "memory": _memory_facts(reader, names),
    }
    return pack_of(facts, columns)


def _memory_facts(reader: ReportReader, categories: list[str]) -> dict[str, object]:
    """What an address map needs: the regions, and what is below the variables."""
    chip = chip_from_toml(reader.target["chip_toml"])
    return {
        "region0": chip.n_bytes_region0,
        "element": chip.n_bytes_memory_element,
        "base_address": chip.memory_base_address,
        "code": [name for name in categories if is_code(name)],
        "variables": [name for name in categories if name in _VARIABLE_CATEGORIES],
    }


def is_code(category: str) -> bool:
    """Whether a category of memory is code, which is at the bottom of a tile."""
    return category.endswith(" Code")


def shown_variables(reader: ReportReader) -> Ints:
    """Ids of the variables that the page lists, largest first."""
    n_bytes = reader.table("variables")["n_bytes"]
    return np.argsort(-n_bytes, kind="stable")[:MOST_VARIABLES]


def variables_pack(reader: ReportReader) -> bytes:
    """The largest variables, and the ranges of steps in which they are live."""
    table, shown = reader.table("variables"), shown_variables(reader)
    texts, columns = {}, {"id": shown}
    for name in ("name", "type", "shape", "source"):
        texts[name], columns[name] = coded([table[name][i] for i in shown.tolist()])
    for name in (
        "n_bytes", "n_elements", "n_tiles", "largest_on_tile", "is_constant", "always_live",
        "first_step", "last_step",
    ):  # fmt: skip
        columns[name] = table[name][shown]
    columns["maker"] = makers_of_variables(reader)[shown]
    columns |= _lifetime_columns(reader, shown)
    rest = np.ones(len(table["n_bytes"]), bool)
    rest[shown] = False
    facts = {
        "texts": texts,
        "n_left_out": int(rest.sum()),
        "bytes_left_out": int(table["n_bytes"][rest].sum()),
        "n_per_part": VARIABLES_PER_PART,
    }
    return pack_of(facts, columns)


def _lifetime_columns(reader: ReportReader, shown: Ints) -> dict[str, Ints]:
    """Ranges of steps, each with the row its variable has on the page."""
    variable = reader.column("live.variable")
    row_of = np.full(len(reader.table("variables")["id"]), -1, np.int64)
    row_of[shown] = np.arange(len(shown))
    at = reader.table("steps")["instruction"]
    first = np.searchsorted(at, reader.column("live.first"))
    last = np.searchsorted(at, reader.column("live.last"), side="right") - 1
    selected = (row_of[variable] >= 0) & (last >= first)
    return {
        "life_row": row_of[variable][selected],
        "life_first": first[selected],
        "life_last": last[selected],
    }


def variable_tiles_pack(reader: ReportReader, part: int) -> bytes | None:
    """Bytes on each tile of 64 listed variables; None if there is no such part."""
    shown = shown_variables(reader)[part * VARIABLES_PER_PART : (part + 1) * VARIABLES_PER_PART]
    if part < 0 or not len(shown):
        return None
    start = reader.column("variable.tile_start")
    ranges = [slice(start[v], start[v + 1]) for v in shown.tolist()]
    tile, n_bytes = reader.column("variable.tile"), reader.column("variable.tile_bytes")
    columns = {
        "start": np.cumsum([0, *(int(r.stop - r.start) for r in ranges)]),
        "tile": np.concatenate([tile[r] for r in ranges]),
        "n_bytes": np.concatenate([n_bytes[r] for r in ranges]),
    }
    return pack_of({}, columns)


def tile_contents_pack(reader: ReportReader, part: int) -> bytes | None:
    """Variables and vertices on each of 16 tiles; None if there is no such part."""
    tiles = range(part * TILES_PER_PART, min(reader.n_tiles, (part + 1) * TILES_PER_PART))
    if part < 0 or not tiles:
        return None
    variables = [reader.tile_variables(tile) for tile in tiles]
    peak = _live_at_peaks(reader, tiles, [variable for variable, _ in variables])
    vertex_start, vertex_type, vertex_count = _vertices_on(reader, tiles)
    columns = {
        "start": np.cumsum([0, *(len(v) for v, _ in variables)]),
        "variable": np.concatenate([v for v, _ in variables]),
        "n_bytes": np.concatenate([n for _, n in variables]),
        "at_peak": np.concatenate(peak).astype(np.int64),
        **_addresses(reader, tiles),
        "vertex_start": vertex_start,
        "vertex_type": vertex_type,
        "vertex_count": vertex_count,
    }
    return pack_of({}, columns)


def _live_at_peaks(reader: ReportReader, tiles: range, n_bytes: list[Ints]) -> list[Ints]:
    """For each tile, which of its variables are live at its fullest moment."""
    first, last = reader.column("live.first"), reader.column("live.last")
    always = reader.column("variable.always_live").astype(bool)
    live_at: dict[int, Ints] = {}
    result = []
    peaks = reader.table("tiles")["peak_instruction"][tiles.start : tiles.stop].tolist()
    for variable, instruction in zip(n_bytes, peaks, strict=True):
        if instruction not in live_at:
            live_at[instruction] = always.copy()
            is_live = (first <= instruction) & (last >= instruction)
            live_at[instruction][reader.column("live.variable")[is_live]] = True
        result.append(live_at[instruction][variable])
    return result


def _addresses(reader: ReportReader, tiles: range) -> dict[str, Ints]:
    """The address of each variable, -1 for none; no column in reports that do not say."""
    result = [reader.tile_addresses(tile) for tile in tiles]
    known = [address for address in result if address is not None]
    return {"address": np.concatenate(known)} if len(known) == len(result) else {}


def step_live_pack(reader: ReportReader, part: int) -> bytes | None:
    """Temporary bytes of every tile at each of 16 steps; None if there is no such part."""
    first = part * STEPS_PER_PART
    last = min(reader.n_steps, first + STEPS_PER_PART)
    if part < 0 or first >= last:
        return None
    return pack_of({"n_steps": last - first}, {"live": reader.matrix("live").rows(first, last)})


def _vertices_on(reader: ReportReader, tiles: range) -> tuple[Ints, Ints, Ints]:
    """CSR of tiles: codelets and how many vertices of each."""
    tile, kind, count = _vertices_by_tile(reader)
    mine = slice(*np.searchsorted(tile, (tiles.start, tiles.stop)))
    n_types = len(reader.table("vertex_types")["id"])
    counts = np.zeros((len(tiles), max(1, n_types)), np.int64)
    np.add.at(counts, (tile[mine] - tiles.start, kind[mine]), count[mine])
    on, kind = np.nonzero(counts)
    starts = np.searchsorted(on, np.arange(len(tiles) + 1))
    return starts, kind, counts[on, kind]


_sorted_vertices: "WeakKeyDictionary[ReportReader, tuple[Ints, Ints, Ints]]" = WeakKeyDictionary()


def _vertices_by_tile(reader: ReportReader) -> tuple[Ints, Ints, Ints]:
    """Tile, codelet and number of vertices, in the order of tiles; sorted once for a report."""
    if reader not in _sorted_vertices:
        start, types = reader.column("vertices.start"), reader.table("vertices")["vertex_type"]
        tile, count = reader.column("vertices.tile"), reader.column("vertices.count")
        order = np.argsort(tile, kind="stable")
        kind = np.repeat(types, np.diff(start))
        _sorted_vertices[reader] = tile[order], kind[order], count[order]
    return _sorted_vertices[reader]


def liveness_pack(reader: ReportReader) -> bytes:
    """Bytes over steps, and what would lower the peak: of all tiles, and of the fullest."""
    steps, tiles = reader.table("steps"), reader.table("tiles")
    fullest = int(tiles["temporary"].argmax())
    facts = {
        "always_live": int(tiles["always_live"].sum()),
        "peak_step": int(steps["temporary_bytes"].argmax()) if reader.n_steps else None,
        "fullest_tile": fullest,
        "available": int(reader.info["available_bytes"]),
        "n_tiles": reader.n_tiles,
        "freeing": {
            "all": _freeing(reader, None) if reader.n_steps else [],
            "tile": _freeing(reader, fullest) if reader.n_steps else [],
        },
    }
    columns = {
        "temporary": steps["temporary_bytes"],
        "largest": steps["largest_temporary"],
    }
    return pack_of(facts, columns)


def _freeing(reader: ReportReader, tile: int | None) -> list[dict[str, int]]:
    """For the largest variables at the peak: how far it falls if one takes no memory.

    Without a variable another step may become the fullest: what is saved is the difference of the
    two peaks, often less than the variable's size.
    """
    curve = _curve(reader, tile)
    peak = int(curve.argmax())
    live = reader.live_at(peak, tile)
    temporary = ~live.always_live
    result = []
    pairs = zip(live.variable[temporary].tolist(), live.n_bytes[temporary].tolist(), strict=True)
    at = reader.table("steps")["instruction"]
    for variable, n_bytes in list(pairs)[:_MOST_FREEING]:
        without = curve.copy()
        for first, last in reader.lifetimes(variable).tolist():
            without[np.searchsorted(at, first) : np.searchsorted(at, last, side="right")] -= n_bytes
        saves = int(curve[peak] - without.max())
        result.append({"variable": variable, "n_bytes": n_bytes, "saves": saves})
    return sorted(result, key=lambda row: -row["saves"])


def _curve(reader: ReportReader, tile: int | None) -> Ints:
    """int64[n_steps]: temporary bytes of variables, on a tile or on all."""
    if tile is None:
        return reader.table("steps")["temporary_bytes"]
    at = reader.table("steps")["instruction"]
    size = np.zeros(len(reader.table("variables")["id"]), np.int64)
    variables, n_bytes = reader.tile_variables(tile)
    size[variables] = n_bytes
    size = size[reader.column("live.variable")]
    first = np.searchsorted(at, reader.column("live.first"))
    last = np.searchsorted(at, reader.column("live.last"), side="right")
    change = np.zeros(len(at) + 1, np.int64)
    np.add.at(change, first, np.where(last > first, size, 0))
    np.add.at(change, last, np.where(last > first, -size, 0))
    return np.cumsum(change)[: len(at)]

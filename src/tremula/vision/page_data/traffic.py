"""What the Traffic view fetches: bytes from tiles to tiles, of a step or of everything that ran."""

import numpy as np

from tremula.base.errors import PoplarError
from tremula.vision.analysis.traffic import TileTraffic, step_traffic, total_traffic
from tremula.vision.page_data.pack import pack_of
from tremula.vision.report.reader import ReportReader

Ints = np.ndarray
MOST_BINS = 184  # of a side of the heat map: a Bow's 1,472 tiles in groups of eight
MOST_ROUTES = 200
MOST_EXPORTED_STEPS = 48


def traffic_pack(reader: ReportReader) -> bytes:
    """Everything that ran; or why that is not known."""
    try:
        return _packed(reader, -1, total_traffic(reader))
    except PoplarError as error:
        return pack_of({"why_not": str(error), "step": -1})


def step_traffic_pack(reader: ReportReader, step: int) -> bytes | None:
    """One execution of a step."""
    if not 0 <= step < reader.n_steps:
        return None
    try:
        return _packed(reader, step, step_traffic(reader, step))
    except PoplarError as error:
        return pack_of({"why_not": str(error), "step": step})


def busiest_steps(reader: ReportReader) -> list[int]:
    """The steps that move most, which an export holds."""
    steps = reader.table("steps")
    moved = np.asarray(steps["bytes_in"]) * np.maximum(steps["executed"], 1)
    order = np.argsort(-moved, kind="stable")[:MOST_EXPORTED_STEPS]
    return sorted(int(step) for step in order if moved[step])


def _packed(reader: ReportReader, step: int, traffic: TileTraffic) -> bytes:
    """Groups of neighbouring tiles × groups, the busiest routes one by one, and sums of tiles."""
    pool = -(-reader.n_tiles // MOST_BINS)
    n_bins = -(-reader.n_tiles // pool)
    source, destination, n_bytes = traffic.pairs
    key = source // pool * n_bins + destination // pool
    cells = np.bincount(key, n_bytes, n_bins * n_bins)
    busiest = np.argsort(-n_bytes, kind="stable")[:MOST_ROUTES]
    used = np.flatnonzero(cells)
    facts = {
        "why_not": "",
        "step": step,
        "pool": pool,
        "n_bins": n_bins,
        "n_bytes": traffic.n_bytes,
        "n_routes": len(n_bytes),
        "from_outside": int(traffic.from_outside.sum()),
        "to_outside": int(traffic.to_outside.sum()),
    }
    columns = {
        "cell_from": used // n_bins,
        "cell_to": used % n_bins,
        "cell_bytes": np.rint(cells[used]).astype(np.int64),
        "route_from": source[busiest],
        "route_to": destination[busiest],
        "route_bytes": n_bytes[busiest],
        "sent": _per_tile(source, n_bytes, reader.n_tiles),
        "received": _per_tile(destination, n_bytes, reader.n_tiles),
    }
    return pack_of(facts, columns)


def _per_tile(tile: Ints, n_bytes: Ints, n_tiles: int) -> Ints:
    return np.rint(np.bincount(tile, n_bytes, n_tiles)).astype(np.int64)

"""`tremula demo --tiles`: run a tile program and print its profile: the whole stack once."""

import argparse
import math
import time
from pathlib import Path

import numpy as np

from tremula.base.errors import InvalidOption
from tremula.commands.progress import progress
from tremula.hardware import Chip


def run(args: argparse.Namespace) -> int:
    """Heat flows through a plate: one block of the plate on each tile, halos by views."""
    import tremula as tr
    from tremula.demo.heat import heat_engine
    from tremula.vision.report.write import report_of_engine

    chip = tr.chip(args.chip)
    n_tiles = chip.n_tiles
    grid = _nearly_square(n_tiles)
    _check_size(args.size, grid, chip)
    size = f"{args.size} x {args.size}"
    # At once, also into a pipe: what follows may take long.
    print(f"Heat equation on {size} points, {n_tiles} tiles of a {args.chip}.", flush=True)
    started = time.perf_counter()
    with progress("compiling") as line:
        engine = heat_engine(args.size, args.steps, grid, args.chip)
        compiled = time.perf_counter()
        line(None, "native code")
        engine.load()
        plate = _hot_edges(args.size)
        engine.write_tensor("a", plate)
        engine.write_tensor("b", plate)
        loaded = time.perf_counter()
    with progress("running"):
        engine.run()
        ran = time.perf_counter()
    print(f"  built and compiled in {compiled - started:.2f} s,", end=" ")
    print(f"native code in {loaded - compiled:.2f} s")
    print(f"  {args.steps} steps on this computer: {ran - loaded:.3f} s")
    report = engine.report()
    microseconds = report.total_seconds * 1e6
    print(f"  {args.steps} steps on a {report.chip.name}, modelled: {microseconds:,.0f} µs\n")
    print(_picture(engine.read_tensor("plate")))
    print()
    engine.print_profile_summary(show_execution_steps=True)
    print()
    tell_report(report_of_engine(engine, args.report))
    return 0


def tell_report(path: Path) -> None:
    """Say where a report is and how to look at it."""
    print(f"The report is in {path}")
    print(f"  see it in a browser: tremula view {path}")
    print(f"  or here:             tremula report {path} summary")


def _check_size(size: int, grid: tuple[int, int], chip: Chip) -> None:
    """Blocks with inner points, also at the edge, and two grids of floats in all memory."""
    least = 2 * max(grid)
    most = math.isqrt(chip.n_tiles * chip.n_bytes_available_per_tile // (2 * 4))
    if not least <= size <= most:
        raise InvalidOption(
            f"--size {size:,} does not suit the {grid[0]} x {grid[1]} tiles of a {chip.name}: "
            f"each needs 2 x 2 points, and all points need memory twice.",
            hint=f"--size {least} to {most}",
        )


def _nearly_square(n: int) -> tuple[int, int]:
    """The two factors of n that are closest to each other."""
    rows = max(d for d in range(1, int(n**0.5) + 1) if n % d == 0)
    return rows, n // rows


def _hot_edges(n: int) -> np.ndarray:
    """A cold plate with a hot left edge and a warm spot."""
    plate = np.zeros((n, n), np.float32)
    plate[:, 0] = 1.0
    plate[n // 3 : n // 2, n // 2 : 2 * n // 3] = 1.0
    return plate


def _picture(plate: np.ndarray, n_rows: int = 16, n_columns: int = 48) -> str:
    """The plate in characters, hotter is darker."""
    shades = " .:-=+*#%@"
    rows = np.linspace(0, len(plate) - 1, n_rows).astype(int)
    columns = np.linspace(0, len(plate) - 1, n_columns).astype(int)
    levels = np.clip(plate[np.ix_(rows, columns)] * len(shades), 0, len(shades) - 1).astype(int)
    return "\n".join("  " + "".join(shades[level] for level in row) for row in levels)

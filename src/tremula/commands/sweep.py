"""`tremula sweep space.toml`: chips × options × models, and what no other point beats."""

import argparse
import json
from pathlib import Path

from tremula.base.storage.atomic_file import write_text
from tremula.commands.arguments import output_file, whole
from tremula.commands.progress import progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("space", type=Path, help="a TOML file: [models], [chip], [options]")
    parser.add_argument("--workers", type=whole(1), help="processes that compile at a time")
    parser.add_argument(
        "--cluster", metavar="ADDRESS", help="a Dask scheduler, tcp://host:8786 (tremula[sweep])"
    )
    parser.add_argument(
        "--folder", type=Path, help="where results are stored; by default, Tremula's cache"
    )
    parser.add_argument("--html", type=output_file, metavar="FILE", help="a page of the fronts")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from tremula.explore.space import load_space  # these need PyTorch
    from tremula.explore.sweeps import sweep, swept_page, swept_table

    space = load_space(args.space)
    with progress("sweeping") as report_share:
        swept = sweep(
            space,
            folder=args.folder,
            n_workers=args.workers,
            address=args.cluster,
            progress=report_share,
        )
    if args.json:
        pairs = zip(swept.points, swept.is_front, strict=True)
        rows = [
            {
                "job": p.job,
                "outcome": p.outcome.as_dict(),
                "is_front": is_front,
                "area_mm2": p.area_mm2,
                "samples_per_s_mm2": p.per_mm2,
                "samples_per_s_watt": p.per_watt,
            }
            for p, is_front in pairs
        ]
        print(json.dumps(rows, indent=1))
    else:
        print(swept_table(swept))
    if args.html is not None:
        write_text(args.html, swept_page(swept))
    return 0 if any(point.outcome.fits for point in swept.points) else 1

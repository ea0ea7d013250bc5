"""`tremula view REPORT …`: open the analyser page in a browser, or write it to one file."""

import argparse
import time
import webbrowser
from contextlib import ExitStack, closing
from pathlib import Path

from tremula.base.errors import InvalidOption
from tremula.commands.arguments import output_file, port
from tremula.commands.progress import progress
from tremula.commands.reports.remote_reports import local_report, remote_of
from tremula.vision.page_data.fetch import PageData, stamp
from tremula.vision.serve.export import export_page
from tremula.vision.serve.server import PageServer

_POLL_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "reports",
        nargs="+",
        metavar="REPORT",
        help="profile.pop, its folder, or host:path (by SSH); two are compared",
    )
    parser.add_argument(
        "--export", type=output_file, metavar="FILE.html", help="write one file instead"
    )
    parser.add_argument("--port", type=port, default=0, help="default: any free port")
    parser.add_argument(
        "--host-name",
        action="append",
        default=[],
        metavar="NAME",
        help="also answer to this name (a tunnel or proxy); localhost always works",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="wait for a report that is not there yet, and show newer ones without asking",
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def run(args: argparse.Namespace) -> int:
    with ExitStack() as stack:
        if args.watch:
            _reject_remote(args.reports)
        return _run(args, [stack.enter_context(local_report(report)) for report in args.reports])


def _reject_remote(reports: list[str]) -> None:
    for report in reports:
        if remote_of(report) is not None:
            raise InvalidOption(
                f"--watch cannot watch {report!r}: a report on another computer is copied once.",
                hint="leave out --watch, or run `tremula view --watch` there and use ssh -L",
            )


def _run(args: argparse.Namespace, paths: list[Path]) -> int:
    if args.watch:
        _wait_for(paths)
    with progress("reading"):
        data = PageData.of_files(paths)
    if args.export is not None:
        with closing(data):
            return _export(data, args.export)
    with _listening(data, args) as server:
        try:
            print(f"{server.url}\nPress Ctrl-C to stop.", flush=True)
            if not args.no_browser:
                webbrowser.open(server.url)
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


def _export(data: PageData, path: Path) -> int:
    with progress("exporting") as report_share:
        n_packs, n_left_out = export_page(data, path, progress=report_share)
    size = path.stat().st_size / 1e6
    left_out = f"; {n_left_out} details left out" if n_left_out else ""
    print(f"{path}: {size:.1f} MB, {n_packs} parts{left_out}")
    return 0


def _listening(data: PageData, args: argparse.Namespace) -> PageServer:
    try:
        return PageServer(data, args.port, args.host_name, is_watching=args.watch)
    except OSError as error:
        data.close()
        raise InvalidOption(
            f"cannot listen on port {args.port}: {error.strerror or error}.",
            hint="give another --port, or leave it out for any free one",
        ) from error


def _wait_for(paths: list[Path]) -> None:
    """Return when all reports are there."""
    missing = [path for path in paths if stamp(path) is None]
    if missing:
        print(f"Waiting for {', '.join(map(str, missing))}. Ctrl-C stops.", flush=True)
    while any(stamp(path) is None for path in missing):
        time.sleep(_POLL_S)

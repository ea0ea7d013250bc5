"""`tremula view REPORT …`: open the analyser page in a browser, or write it to one file."""

import argparse
import webbrowser
from contextlib import ExitStack
from pathlib import Path

from tremula.base.errors import InvalidOption
from tremula.vision.page_data.fetch import PageData
from tremula.vision.report.reader import open_report
from tremula.vision.serve.export import export_page
from tremula.vision.serve.server import PageServer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "reports", nargs="+", metavar="REPORT", help="profile.pop or its folder; two are compared"
    )
    parser.add_argument("--export", type=Path, metavar="FILE.html", help="write one file instead")
    parser.add_argument("--port", type=int, default=0, help="default: any free port")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def run(args: argparse.Namespace) -> int:
    if not 0 <= args.port < 65536:
        raise InvalidOption(
            f"{args.port} is not a valid port.", hint="use 1 to 65535, or 0 for any"
        )
    with ExitStack() as stack:
        data = PageData([stack.enter_context(open_report(path)) for path in args.reports])
        if args.export is not None:
            n_packs, n_left_out = export_page(data, args.export)
            size = args.export.stat().st_size / 1e6
            left_out = f"; {n_left_out} details left out" if n_left_out else ""
            print(f"{args.export}: {size:.1f} MB, {n_packs} parts{left_out}")
            return 0
        with PageServer(data, args.port) as server:
            print(f"{server.url}\nPress Ctrl-C to stop.", flush=True)
            if not args.no_browser:
                webbrowser.open(server.url)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print()
    return 0

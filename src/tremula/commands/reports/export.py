"""`tremula export REPORT`: what ran over time, as a file for Perfetto, Chrome or a table."""

import argparse
from contextlib import ExitStack
from pathlib import Path

from tremula.base.errors import InvalidOption, MissingProfileData
from tremula.commands.arguments import one_of, output_file
from tremula.commands.progress import progress
from tremula.commands.reports.remote_reports import local_report
from tremula.vision.report.reader import ReportReader, open_report
from tremula.vision.trace.export import export_chrome, export_csv, export_parquet, export_perfetto
from tremula.vision.trace.reader import TraceReader
from tremula.vision.trace.trace_files import newest_trace

# Formats and the ends of file names that mean them, the usual one first.
SUFFIXES = {
    "perfetto": (".pftrace", ".perfetto-trace"),
    "chrome": (".json",),
    "csv": (".csv",),
    "parquet": (".parquet",),
}
_OF_HOST_ONLY = ("csv", "parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "report",
        metavar="REPORT",
        help="a profile.pop, the folder it is in, host:path (by SSH), or a system trace (.pvti)",
    )
    parser.add_argument(
        "--format",
        type=one_of(SUFFIXES, "format"),
        help=f"one of {', '.join(SUFFIXES)}; default: as FILE's name ends, else perfetto",
    )
    parser.add_argument(
        "-o", "--output", type=output_file, metavar="FILE",
        help="default: named after the report, in this folder",
    )  # fmt: skip
    parser.add_argument(
        "--trace", type=Path, metavar="FILE.pvti",
        help="the system trace to add; default: the newest one next to the report",
    )  # fmt: skip
    parser.add_argument("--no-host", action="store_true", help="chips only, without a system trace")


def run(args: argparse.Namespace) -> int:
    name = args.format or _format_of(args.output)
    with ExitStack() as stack:
        path = stack.enter_context(local_report(args.report))
        if path.suffix == ".pvti":
            report, trace = None, stack.enter_context(TraceReader(path))
        else:
            report = stack.enter_context(open_report(path))
            trace = _trace_beside(report, args, stack)
        output = args.output or output_file(f"{_title(path)}{SUFFIXES[name][0]}")
        with progress("exporting"):
            _write(name, output, trace, report)
    print(f"{output}: {output.stat().st_size:,} bytes; {_how_to_open(name)}")
    return 0


def _format_of(output: Path | None) -> str:
    if output is None:
        return "perfetto"
    for name, suffixes in SUFFIXES.items():
        if output.name.lower().endswith(suffixes):
            return name
    known = ", ".join(suffix for suffixes in SUFFIXES.values() for suffix in suffixes)
    raise InvalidOption(
        f"the name {output.name!r} does not say a format.",
        hint=f"end it with one of {known}, or give --format",
    )


def _trace_beside(
    report: ReportReader, args: argparse.Namespace, stack: ExitStack
) -> TraceReader | None:
    if args.no_host:
        return None
    if args.trace is not None:
        return stack.enter_context(TraceReader(args.trace))
    trace = newest_trace(report)
    return None if trace is None else stack.enter_context(trace)


def _write(name: str, output: Path, trace: TraceReader | None, report: ReportReader | None) -> None:
    if name in _OF_HOST_ONLY:
        if trace is None:
            raise MissingProfileData(
                f"a {name} file lists host events, and there is no system trace.",
                hint="give --trace FILE.pvti, or use --format perfetto for the chips",
            )
        (export_csv if name == "csv" else export_parquet)(output, trace)
        return
    if trace is None and report is not None and not report.n_entries:
        raise MissingProfileData(
            f"the program of {str(report.path)!r} has not run: nothing happened over time.",
            hint="run it with a report: tremula run --report DIR script.py",
        )
    (export_chrome if name == "chrome" else export_perfetto)(output, trace, report)


def _title(path: Path) -> str:
    """The name of a report's folder, or of a trace."""
    resolved = path.resolve()
    is_named = resolved.suffix == ".pvti" or (
        resolved.suffix == ".pop" and resolved.name != "profile.pop"
    )
    if is_named:
        return resolved.stem
    folder = resolved.parent if resolved.suffix == ".pop" else resolved
    return folder.name or "profile"


def _how_to_open(name: str) -> str:
    if name in _OF_HOST_ONLY:
        return "a row per host event"
    return "open it in ui.perfetto.dev" + (" or chrome://tracing" if name == "chrome" else "")

"""A report and the system trace next to it as one file for Perfetto or Chrome."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tremula.base.errors import MissingProfileData, PoplarError
from tremula.vision.report.reader import ReportReader
from tremula.vision.trace.beside_report import trace_paths
from tremula.vision.trace.export import chrome_parts, perfetto_parts
from tremula.vision.trace.reader import TraceReader


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A format that other tools open."""

    name: str
    suffix: str
    content_type: str
    parts: Callable[[TraceReader | None, ReportReader | None], Iterator[bytes]]


FORMATS = {
    "perfetto": TraceFormat("perfetto", ".pftrace", "application/octet-stream", perfetto_parts),
    "chrome": TraceFormat("chrome", ".json", "application/json", chrome_parts),
}


def newest_trace(report: ReportReader) -> TraceReader | None:
    """The newest readable system trace beside a report, open; None if there is none."""
    for path in reversed(trace_paths(report)):
        try:
            return TraceReader(path)
        except PoplarError:
            continue  # of a process that was killed, or another program's
    return None


def trace_file(report: ReportReader, name: str) -> bytes:
    """The file of a format: steps of every chip and, where a trace is next to it, host events."""
    if not report.n_entries:
        raise MissingProfileData(
            "this program has not run, so there is nothing over time to export.",
            hint="run it with a report: tremula run --report DIR script.py",
        )
    trace = newest_trace(report)
    try:
        return b"".join(FORMATS[name].parts(trace, report))
    finally:
        if trace is not None:
            trace.close()

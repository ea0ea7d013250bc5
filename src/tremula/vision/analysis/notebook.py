"""A report as HTML, for notebooks: names are untrusted text, so they are escaped."""

from html import escape

from tremula.vision.analysis.insights import insights
from tremula.vision.analysis.summary import execution_totals, memory_totals
from tremula.vision.report.reader import ReportReader
from tremula.vision.report.time_totals import PARTS


def report_html(reader: ReportReader) -> str:
    """A small table of totals and the best advice."""
    memory, execution = memory_totals(reader), execution_totals(reader)
    fullest = f"the fullest tile, {memory['fullest_tile']}"
    rows = [
        ("report", str(reader.path)),
        ("chip", f"{reader.target['chip']}, {reader.n_ipus} × {reader.tiles_per_ipu:,} tiles"),
        ("memory", f"{memory['largest']:,} of {memory['available_per_tile']:,} B on {fullest}"),
    ]
    if execution is not None:
        shares = ", ".join(
            f"{name} {100 * execution[name] / max(1, execution['total_cycles']):.0f} %"  # pyright: ignore[reportOperatorIssue, reportArgumentType]
            for name in PARTS
        )
        rows.append(
            (
                "cycles",
                f"{execution['total_cycles']:,} ({execution['microseconds']:,.1f} µs): {shares}",
            )
        )
    body = "".join(
        f"<tr><th style='text-align:left'>{escape(k)}</th><td>{escape(v)}</td></tr>"
        for k, v in rows
    )
    advice = "".join(f"<li>{escape(str(i['title']))}</li>" for i in insights(reader)[:3])
    return f"<table>{body}</table>" + (f"<ul>{advice}</ul>" if advice else "")

"""Plots of a history: characters for a terminal, SVG, and one HTML page without Internet."""

import html
import time
from collections.abc import Sequence

from tremula.vision.analysis.history import METRICS, MetricChange, ModelHistory, RunHistory
from tremula.vision.analysis.text_views import printable, table

_ROWS = 10
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 920, 240, 92, 16, 22, 34
_STYLE = """
:root { color-scheme: light dark; --ink: #14181f; --muted: #5a6375; --line: #d4d9e1;
  --ground: #ffffff; --mark: #0072b2; --moved: #b3361f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ebf0; --muted: #9ca6b7; --line: #333b47;
  --ground: #15191f; --mark: #6cb6ff; --moved: #ff9178; } }
body { background: var(--ground); color: var(--ink); font: 14px/1.5 system-ui, sans-serif;
  margin: 24px auto; max-width: 960px; padding: 0 16px; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; width: 100%; margin: 8px 0 20px; }
th, td { text-align: right; padding: 4px 8px; border-bottom: 1px solid var(--line); }
th { color: var(--muted); font-weight: 560; } th.text, td.text { text-align: left; }
td.causes { text-align: left; color: var(--muted); }
body svg text { fill: var(--muted); } body svg .line { stroke: var(--mark); }
body svg .run { fill: var(--mark); } body svg .moved { stroke: var(--moved); }
body svg .moved-mark { fill: var(--moved); }
"""
_SVG_STYLE = """
svg { max-width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: #5a6375; } svg .title { font-weight: 600; }
svg .grid { stroke: #b9c0cb; stroke-width: .6; }
svg .line { fill: none; stroke: #0072b2; stroke-width: 1.6; } svg .run { fill: #0072b2; }
svg .moved { fill: none; stroke: #b3361f; stroke-width: 1.6; stroke-dasharray: 5 3; }
svg .moved-mark { fill: #b3361f; }
"""


def values_of(model: ModelHistory, metric: str) -> list[tuple[int, float]]:
    """(number of the run, value) of all runs that have one."""
    pairs = ((i, getattr(run, metric)) for i, run in enumerate(model.runs))
    return [(i, float(value)) for i, value in pairs if value is not None]


def metrics_of(model: ModelHistory) -> list[str]:
    """What there is to plot: cycles only if something ran."""
    return [metric for metric in METRICS if values_of(model, metric)]


# -- a terminal ------------------------------------------------------------------------------------


def text_of(history: RunHistory, metrics: Sequence[str], width: int) -> str:
    """Plots, the runs that moved something, and what was skipped."""
    parts = []
    for model in history.models:
        parts.append(f"{printable(model.model)}: {len(model.runs):,} runs")
        shown = [metric for metric in metrics_of(model) if metric in metrics]
        parts += [text_plot(model, metric, width) for metric in shown]
        changes = [change for change in model.changes if change.metric in metrics]
        parts.append(_text_changes(model, changes))
    for path, why in history.skipped:
        parts.append(f"skipped {printable(path)}: {printable(why)}")
    return "\n\n".join(parts)


def text_plot(model: ModelHistory, metric: str, width: int) -> str:
    """Runs from left to right, a column each where they fit; `^` marks runs that moved it."""
    pairs = values_of(model, metric)
    low, high = min(v for _, v in pairs), max(v for _, v in pairs)
    low, high = (low, high) if high > low else (0.0, max(1.0, high) * 2)
    room = max(8, width - 18)
    n = len(model.runs)
    columns = [round(i * (min(room, 3 * n) - 1) / max(1, n - 1)) for i in range(n)]
    grid = [[" "] * (columns[-1] + 1) for _ in range(_ROWS)]
    for i, value in pairs:
        grid[_ROWS - 1 - round((value - low) / (high - low) * (_ROWS - 1))][columns[i]] = "*"
    labels = {0: f"{high:,.0f}", _ROWS - 1: f"{low:,.0f}"}
    lines = [f"{labels.get(i, ''):>15} |{''.join(row).rstrip()}" for i, row in enumerate(grid)]
    marks = [" "] * (columns[-1] + 1)
    for change in model.changes:
        if change.metric == metric:
            marks[columns[change.index]] = "^"
    return "\n".join([f"  {METRICS[metric]}", *lines, f"{'':>15} +{''.join(marks).rstrip()}"])


def _text_changes(model: ModelHistory, changes: Sequence[MetricChange]) -> str:
    if not changes:
        return "Nothing moved."
    rows = [
        (model.runs[c.index].label, METRICS[c.metric], round(c.before), round(c.after), _percent(c))
        for c in changes
    ]
    lines = [table(("moved by", "what", "before", "after", "%"), rows), "\nLargest causes:"]
    for change in changes:
        name = f"{change.run}, {METRICS[change.metric]}"
        lines += [f"  {printable(name)}: {printable(cause)}" for cause in change.causes]
    return "\n".join(lines)


def _percent(change: MetricChange) -> str:
    return f"{100 * change.share:+.1f}"


# -- SVG and HTML ----------------------------------------------------------------------------------


def svg_of(history: RunHistory, metrics: Sequence[str]) -> str:
    """All plots below each other, as one picture."""
    charts = [
        (model, metric) for model in history.models for metric in metrics_of(model)
        if metric in metrics
    ]  # fmt: skip
    parts = [
        f'<g transform="translate(0 {i * _HEIGHT})">{_chart(model, metric)}</g>'
        for i, (model, metric) in enumerate(charts)
    ]
    return _svg("".join(parts), max(1, len(charts)) * _HEIGHT)


def _svg(content: str, height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img"><style>{_SVG_STYLE}</style>{content}</svg>'
    )


def _chart(model: ModelHistory, metric: str) -> str:
    """A line over runs; each run a point that says what it is, each change a dashed line."""
    pairs = values_of(model, metric)
    high = max(1.0, *(v for _, v in pairs)) * 1.08
    n = len(model.runs)

    def x(run: float) -> float:
        return _LEFT + (run + 0.5) / n * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / high * (_HEIGHT - _TOP - _BOTTOM)

    title = f"{model.model}: {METRICS[metric]}"
    parts = [f'<text class="title" x="{_LEFT}" y="14">{html.escape(title)}</text>']
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = y(high * share)
        parts.append(
            f'<path class="grid" d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}"/>'
            f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">'
            f"{_short(high * share)}</text>"
        )
    moved = [c for c in model.changes if c.metric == metric]
    for change in moved:
        at = (x(change.index - 1) + x(change.index)) / 2
        parts.append(
            f'<path class="moved" d="M{at:.1f} {_TOP}V{_HEIGHT - _BOTTOM}"/>'
            f'<text class="moved-mark" x="{at:.1f}" y="{_HEIGHT - 16}" text-anchor="middle">'
            f"{html.escape(change.run[:24])} {_percent(change)} %</text>"
        )
    line = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in pairs)
    parts.append(f'<polyline class="line" points="{line}"/>')
    radius = 3.2 if n < 120 else 1.6
    for i, value in pairs:
        text = f"{model.runs[i].label}: {value:,.0f} {METRICS[metric]}"
        parts.append(
            f'<circle class="run" cx="{x(i):.1f}" cy="{y(value):.1f}" r="{radius}">'
            f"<title>{html.escape(text)}</title></circle>"
        )
    return "".join(parts)


def _short(value: float) -> str:
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def html_of(history: RunHistory, metrics: Sequence[str]) -> str:
    """One page with everything inside, which loads nothing and runs nothing."""
    parts = [f"<h1>History of {html.escape(history.folder)}</h1>"]
    for model in history.models:
        parts.append(f"<h2>{html.escape(model.model)}: {len(model.runs):,} runs</h2>")
        parts += [_svg(_chart(model, m), _HEIGHT) for m in metrics_of(model) if m in metrics]
        parts.append(_html_changes(model, [c for c in model.changes if c.metric in metrics]))
        parts.append(_html_runs(model))
    parts += [f"<p>skipped {html.escape(p)}: {html.escape(w)}</p>" for p, w in history.skipped]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Tremula history</title><style>{_STYLE}</style></head><body>{''.join(parts)}"
        "</body></html>\n"
    )


def _html_changes(model: ModelHistory, changes: Sequence[MetricChange]) -> str:
    if not changes:
        return "<p>Nothing moved.</p>"
    rows = "".join(
        f'<tr><td class="text">{html.escape(model.runs[c.index].label)}</td>'
        f'<td class="text">{METRICS[c.metric]}</td>'
        f"<td>{c.before:,.0f}</td><td>{c.after:,.0f}</td><td>{_percent(c)}</td>"
        f'<td class="causes">{"<br>".join(map(html.escape, c.causes))}</td></tr>'
        for c in changes
    )
    heads = ("moved by", "what", "before", "after", "%", "largest causes")
    return f"<table><tr>{''.join(f'<th>{h}</th>' for h in heads)}</tr>{rows}</table>"


def _html_runs(model: ModelHistory) -> str:
    rows = "".join(
        f'<tr><td class="text">{html.escape(run.name)}</td>'
        f'<td class="text">{html.escape(run.commit[:10])}</td>'
        f"<td>{time.strftime('%Y-%m-%d %H:%M', time.gmtime(run.created))}</td>"
        f"<td>{'' if run.cycles is None else f'{run.cycles:,}'}</td>"
        f"<td>{run.memory_bytes:,}</td><td>{run.largest_tile_bytes:,}</td></tr>"
        for run in model.runs
    )
    heads = ("run", "commit", "written (UTC)", *METRICS.values())
    head = "".join(f"<th>{h}</th>" for h in heads)
    return f"<details><summary>All runs</summary><table><tr>{head}</tr>{rows}</table></details>"

"""Pictures of the garden's pages, as SVG: how a run's time is spent, and curves of its figures.

Both are drawn on white, which reads well on light and dark pages, and need no library.
"""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from tremula.vision.page_data.pack import unpack_pack

# Phases and their colours, as in the analyser.
PHASES = {
    "compute": "#c86f37", "exchange": "#3760c4", "links": "#36bc9e", "host": "#6a3763",
    "sync": "#fac364",
}  # fmt: skip
_LINES = ("#3760c4", "#c86f37", "#36bc9e", "#6a3763")
_N_BINS = 128
_WIDTH, _STRIP, _MARGIN, _LEGEND = 640, 72, 10, 24
_CURVE_WIDTH, _CURVE_HEIGHT = 320, 140


def time_picture(packs: Mapping[str, bytes]) -> str:
    """A strip from the begin of a run to its end: which share of each moment is which phase."""
    facts, columns = unpack_pack(packs["0/overview"])
    cycles = float(np.max(columns["end"], initial=1))
    edges = np.linspace(0, cycles, _N_BINS + 1)
    shares = _shares_of_phases(columns, edges)
    width = (_WIDTH - 2 * _MARGIN) / _N_BINS
    left = _MARGIN + width * np.arange(_N_BINS)
    parts, top = [], np.full(_N_BINS, float(_MARGIN))
    for name, share in shares.items():
        heights = share * _STRIP
        boxes = (
            f"M{left[i]:.1f} {top[i]:.1f}h{width:.1f}v{heights[i]:.1f}h-{width:.1f}z"
            for i in np.flatnonzero(heights > 0.05)
        )
        parts.append(f'<path fill="{PHASES[name]}" d="{"".join(boxes)}"/>')
        top += heights
    legend = [(name, PHASES[name]) for name, share in shares.items() if share.any()]
    total = f"{int(facts['total_cycles']):,} cycles"
    height = _STRIP + 2 * _MARGIN + _LEGEND
    parts += _legend(legend, height - _MARGIN)
    parts += [_text(_WIDTH - _MARGIN, height - _MARGIN, total, "end")]
    return _svg(_WIDTH, height, parts)


def _shares_of_phases(
    columns: Mapping[str, np.ndarray], edges: np.ndarray
) -> dict[str, np.ndarray]:
    """By phase, its share of each bin between two edges."""
    begin, end = columns["begin"].astype(float), columns["end"].astype(float)
    order = np.argsort(end, kind="stable")
    times = np.stack([begin[order], end[order]], 1).reshape(-1)
    times = np.maximum.accumulate(times)  # chips may overlap: what ends later counts later
    result = {}
    for name in PHASES:
        sums = np.cumsum(columns[name][order].astype(float))
        steps = np.stack([np.append(0.0, sums[:-1]), sums], 1).reshape(-1)
        result[name] = np.diff(np.interp(edges, times, steps))
    whole = np.maximum(sum(result.values()), np.diff(edges))
    return {name: cycles / whole for name, cycles in result.items()}


def curves_picture(curves: Mapping[str, Sequence[float]]) -> str | None:
    """Curves over the course of a run, with their largest and smallest value; None if too short."""
    drawn = {name: np.asarray(curve, float) for name, curve in curves.items() if len(curve) > 2}
    if not drawn:
        return None
    low = min(curve.min() for curve in drawn.values())
    high = max(curve.max() for curve in drawn.values())
    left, top = 64, 14
    width, height = _CURVE_WIDTH - left - _MARGIN, _CURVE_HEIGHT - top - _LEGEND - _MARGIN
    parts = [f'<path fill="none" stroke="#bbb" d="M{left} {top}v{height}h{width}"/>']
    for colour, curve in zip(_LINES, drawn.values(), strict=False):
        x = left + width * np.linspace(0, 1, len(curve))
        y = top + height * (1 - (curve - low) / max(high - low, 1e-30))
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>'
        )
    parts += [_text(left - 6, top + 4, f"{high:.3g}", "end")]
    parts += [_text(left - 6, top + height + 4, f"{low:.3g}", "end")]
    names = [(name.replace("_", " "), _LINES[i]) for i, name in enumerate(list(drawn)[:4])]
    return _svg(_CURVE_WIDTH, _CURVE_HEIGHT, parts + _legend(names, _CURVE_HEIGHT - _MARGIN))


def _legend(names: Sequence[tuple[str, str]], y: float) -> list[str]:
    parts, x = [], float(_MARGIN)
    for name, colour in names:
        parts.append(f'<rect x="{x:.0f}" y="{y - 9:.0f}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(x + 14, y, name))
        x += 28 + 6.6 * len(name)
    return parts


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="12" fill="#222">'
        f'<rect width="{width}" height="{height}" rx="6" fill="#fff"/>{"".join(parts)}</svg>\n'
    )

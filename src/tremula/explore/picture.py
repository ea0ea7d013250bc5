"""Pictures without a library: stages on chips with memory and bubbles, and Pareto fronts."""

from collections.abc import Sequence
from html import escape

from tremula.explore.planner import Plan

_WIDTH, _ROW = 900, 46
_USED, _BUSY, _FREE, _FRONT, _POINT = "#4878a8", "#5b9a68", "#e6e6e6", "#c44e52", "#9aa7b5"


def plan_svg(plan: Plan) -> str:
    """Each chip of a replica: its stage, how full its fullest tile is, how long it is busy."""
    best = plan.best
    names = ["first operations", *best.candidate.cuts]
    parts = [_text(10, 22, f"{best.candidate.label}: {best.samples_per_s:,.0f} samples/s", 15)]
    for chip, n_bytes in enumerate(best.n_bytes):
        y = 40 + chip * _ROW
        parts.append(_text(10, y + 14, f"chip {chip}", 13))
        parts.append(_text(10, y + 30, names[chip] if chip < len(names) else "", 11))
        memory = n_bytes / max(1, best.available_bytes)
        parts += _bar(300, y + 2, memory, _USED, f"memory {memory:.0%}")
        busy = best.busy_share[chip]
        parts += _bar(300, y + 20, busy, _BUSY, f"busy {busy:.0%}, waiting {1 - busy:.0%}")
    return _svg(_WIDTH, 60 + len(best.n_bytes) * _ROW, parts)


def _bar(x: int, y: int, share: float, colour: str, label: str) -> list[str]:
    width = 420
    used = min(1.0, share) * width
    return [
        f'<rect x="{x}" y="{y}" width="{width}" height="14" fill="{_FREE}"/>',
        f'<rect x="{x}" y="{y}" width="{used:.1f}" height="14" fill="{colour}"/>',
        _text(x + width + 8, y + 11, label, 11),
    ]


def front_svg(points: Sequence[tuple[float, float, bool, str]], x_name: str, y_name: str) -> str:
    """Points (x, y, is on the front, label); less is better in both. Axes are linear from 0."""
    width, height, left, top = _WIDTH, 460, 80, 30
    x_most = max((p[0] for p in points), default=1.0) or 1.0
    y_most = max((p[1] for p in points), default=1.0) or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        return left + x / x_most * (width - left - 40), height - 60 - y / y_most * (
            height - top - 60
        )

    bottom = height - 60
    parts = [
        f'<line x1="{left}" y1="{bottom}" x2="{width - 20}" y2="{bottom}" stroke="#444"/>',
        f'<line x1="{left}" y1="{top}" x2="{left}" y2="{bottom}" stroke="#444"/>',
        _text(width // 2 - 60, height - 18, f"{x_name}, up to {x_most:.4g}", 12),
        _text(8, top - 8, f"{y_name}, up to {y_most:.4g}", 12),
    ]
    front = sorted(p for p in points if p[2])
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(p[0], p[1]) for p in front))
    parts.append(f'<polyline points="{line}" fill="none" stroke="{_FRONT}" stroke-width="1.5"/>')
    for x, y, is_front, label in points:
        px, py = at(x, y)
        parts.append(
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="{5 if is_front else 3.5}" '
            f'fill="{_FRONT if is_front else _POINT}"><title>{escape(label)}</title></circle>'
        )
    return _svg(width, height, parts)


def page(title: str, svgs: Sequence[str], text: str) -> str:
    """An HTML page of pictures and a table as text, in one file."""
    return (
        f'<!doctype html><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<body style='font-family:sans-serif;max-width:60em;margin:2em auto'>"
        f"<h1>{escape(title)}</h1>{''.join(svgs)}<pre>{escape(text)}</pre></body>\n"
    )


def _text(x: int, y: int, text: str, size: int) -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-family="sans-serif">{escape(text)}</text>'
    )


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    inside = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">\n{inside}\n</svg>\n'
    )

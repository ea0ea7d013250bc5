"""Views of exponent histograms: a table with bars, and a page with a heat map."""

from collections.abc import Iterable
from html import escape

import numpy as np

from tremula.frontends.scaling.exponents import FORMATS, HIGH, LOW, Exponents, Format

_BARS = " ▁▂▃▄▅▆▇█"
_FIRST, _LAST = -28, 18  # exponents shown: half's range and a little more
_STEP = 2  # exponents that share a bar
_MUCH = 0.01  # a share of lost numbers to look at


def _shown(entry: Exponents) -> np.ndarray:
    """Shares of the numbers per bar; what is beyond the ends counts at the ends."""
    counts = entry.counts.astype(float)
    low, high = _FIRST - LOW, _LAST - LOW
    inside = counts[low : high + 1].copy()
    inside[0] += counts[:low].sum()
    inside[-1] += counts[high + 1 :].sum()
    padded = np.append(inside, np.zeros(-len(inside) % _STEP))
    return padded.reshape(-1, _STEP).sum(1) / max(counts.sum(), 1)


def _bars(shares: np.ndarray) -> str:
    top = max(float(shares.max()), 1e-9)
    levels = np.ceil(shares / top * (len(_BARS) - 1)).astype(int)
    return "".join(_BARS[level] for level in levels)


def _lost(entry: Exponents, form: Format) -> str:
    under, over = entry.shares(form)
    if over > 0:
        return f"{over:.1%} over"
    return f"{under:.1%} under" if under > 0 else "·"


def exponents_table(entries: Iterable[Exponents], formats: Iterable[str] = FORMATS) -> str:
    """One line per tensor: its size, a histogram, and what each format would lose."""
    entries, chosen = list(entries), [FORMATS[name] for name in formats]
    width = max([len(e.name) for e in entries], default=6) + 2
    n_bars = -(-(_LAST - _FIRST + 1) // _STEP)
    scale = f"2^{_FIRST}".ljust(n_bars // 2 - 1) + f"2^{_LAST}".rjust(n_bars - n_bars // 2 + 1)
    head = f"{'tensor':<{width}}{'kind':<17}{'rms':>10}  {scale} "
    head += "".join(f"{form.name:>14}" for form in chosen)
    lines = [head]
    for e in entries:
        line = f"{e.name:<{width}}{e.kind:<17}{e.rms:>10.3g}  {_bars(_shown(e))} "
        lines.append(line + "".join(f"{_lost(e, form):>14}" for form in chosen))
    return "\n".join([*lines, "", advice(entries, chosen)])


def advice(entries: list[Exponents], formats: list[Format]) -> str:
    """Of each format, how many tensors lose more than one number in a hundred."""
    words = []
    for form in formats:
        shares = [e.shares(form) for e in entries]
        n_under, n_over = (sum(share[k] > _MUCH for share in shares) for k in (0, 1))
        words.append(f"{form.name}: {n_under} underflow, {n_over} overflow")
    n = len(entries)
    return f"Of {n} tensors, those that lose more than 1 % of their numbers: {'; '.join(words)}."


# -- the page --------------------------------------------------------------------------------------

_CELL, _ROW, _NAMES, _LOSS = 12, 18, 330, 108
_STYLE = """
body { font: 14px system-ui, sans-serif; margin: 24px; background: #fff; color: #1c2330 }
h1 { font-size: 20px } p { max-width: 60em; line-height: 1.5 }
text { font: 12px system-ui, sans-serif; fill: #1c2330 } text.minor { fill: #667085 }
text.much { fill: #d9480f; font-weight: 600 }
@media (prefers-color-scheme: dark) {
  body { background: #11151c; color: #e6e9ef } text { fill: #e6e9ef } text.minor { fill: #98a2b3 }
}
"""


def exponents_page(entries: Iterable[Exponents], title: str) -> str:
    """A page of one file: a row per tensor, a column per exponent, lines where formats end."""
    entries = list(entries)
    rows = [part for number, e in enumerate(entries) for part in _row(e, number)]
    n_cols, height = _LAST - _FIRST + 1, 60 + _ROW * len(entries) + 20
    width = _NAMES + _CELL * n_cols + 40 + _LOSS * len(FORMATS)
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">'
        f"{''.join(_ends(height))}{''.join(_axis())}{''.join(rows)}</svg>"
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style><h1>Exponents of {escape(title)}</h1>"
        "<p>Darker cells hold more of a tensor's numbers; the column is the power of two. "
        "Lines mark the least and the largest power of each format: what lies left of the first "
        "becomes zero, what lies right of the last does not fit. At the right: the share that "
        f"each would lose.</p><p>{escape(advice(entries, list(FORMATS.values())))}"
        f"</p>{picture}</html>\n"
    )


def _place(exponent: float) -> float:
    return _NAMES + (exponent - _FIRST) * _CELL


def _axis() -> Iterable[str]:
    for exponent in range(-28, _LAST + 1, 4):
        x = _place(exponent) + _CELL / 2
        yield f'<text class="minor" x="{x}" y="52" text-anchor="middle">{exponent}</text>'


def _ends(height: int) -> Iterable[str]:
    colours = ("#2b8a3e", "#1f6feb", "#d9480f")
    for number, (form, colour) in enumerate(zip(FORMATS.values(), colours, strict=True)):
        y = 12 + 12 * number
        for exponent in (form.least_exponent, form.largest_exponent + 1):
            x = _place(exponent)
            yield (
                f'<line x1="{x}" x2="{x}" y1="{y}" y2="{height}" stroke="{colour}" '
                'stroke-dasharray="4 3"/>'
            )
        left, right = _place(form.least_exponent), _place(form.largest_exponent + 1)
        yield f'<line x1="{left}" x2="{right}" y1="{y}" y2="{y}" stroke="{colour}"/>'
        yield f'<text x="{_NAMES - 8}" y="{y + 4}" text-anchor="end">{form.name}</text>'
        yield f'<text x="{_loss_column(form)}" y="52">{form.name}</text>'


def _row(entry: Exponents, number: int) -> Iterable[str]:
    y = 60 + number * _ROW
    label = f"{entry.name} · {entry.kind}"
    yield f'<text x="{_NAMES - 8}" y="{y + 13}" text-anchor="end">{escape(label)}</text>'
    shares = entry.counts[_FIRST - LOW : _LAST - LOW + 1] / max(entry.n, 1)
    top = max(float(shares.max()), 1e-9)
    for k, share in enumerate(shares):
        if share > 0:
            yield (
                f'<rect x="{_place(_FIRST + k)}" y="{y}" width="{_CELL}" height="{_ROW - 2}" '
                f'fill="#1f6feb" fill-opacity="{0.08 + 0.92 * share / top:.2f}">'
                f"<title>{escape(label)}: 2^{_FIRST + k}, {share:.2%}</title></rect>"
            )
    for form in FORMATS.values():
        style = "much" if max(entry.shares(form)) > _MUCH else "minor"
        lost = _lost(entry, form)
        yield f'<text class="{style}" x="{_loss_column(form)}" y="{y + 13}">{lost}</text>'


def _loss_column(form: Format) -> float:
    return _place(_LAST + 2) + _LOSS * list(FORMATS).index(form.name)


assert LOW <= _FIRST < _LAST <= HIGH, "what is shown is counted"

"""Plots of the sciences' pages: curves, points and bands on two axes, as SVG text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

import numpy as np

COLOURS = ("#1f6feb", "#d9480f", "#2b8a3e", "#862e9c", "#e8590c", "#0b7285")
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 16, 14, 50  # margins around the axes
_MOST_TICKS = 6


@dataclass(frozen=True, slots=True)
class PlotSeries:
    """Values y over x; a band is drawn between y and `to`."""

    name: str
    x: Sequence[float] | np.ndarray
    y: Sequence[float] | np.ndarray
    kind: Literal["line", "points", "band"] = "line"
    to: Sequence[float] | np.ndarray | None = None
    colour: int | None = None  # in COLOURS; otherwise the next one


@dataclass(frozen=True, slots=True)
class _PlotAxis:
    """Places of values between two pixels."""

    low: float
    high: float
    first: float
    last: float
    is_log: bool

    def at(self, values: np.ndarray) -> np.ndarray:
        values, low, high = np.asarray(values, float), self.low, self.high
        if self.is_log:
            values, low, high = np.log10(values), math.log10(low), math.log10(high)
        return self.first + (values - low) / (high - low) * (self.last - self.first)

    def ticks(self) -> list[float]:
        if self.is_log:
            low, high = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            step = max(1, (high - low) // _MOST_TICKS)
            result = [10.0**k for k in range(low, high + 1, step)]
        else:
            step = _round_step((self.high - self.low) / _MOST_TICKS)
            first = math.ceil(self.low / step)
            result = [k * step for k in range(first, math.floor(self.high / step) + 1)]
        slack = 1e-9 * abs(self.high)
        return [tick for tick in result if self.low - slack <= tick <= self.high + slack]


def plot_svg(
    series: Sequence[PlotSeries],
    *,
    x_name: str,
    y_name: str,
    log_x: bool = False,
    log_y: bool = False,
    size: tuple[int, int] = (640, 360),
) -> str:
    """The text of an SVG picture; logarithmic axes need positive values."""
    if not series:
        raise ValueError("a plot needs at least one series.")
    width, height = size
    xs = np.concatenate([np.asarray(one.x, float) for one in series])
    ys = np.concatenate([np.asarray(y, float) for one in series for y in (one.y, one.to)
                         if y is not None])  # fmt: skip
    x_axis = _axis(xs, _LEFT, width - _RIGHT, is_log=log_x, name=x_name)
    y_axis = _axis(ys, height - _BOTTOM, _TOP, is_log=log_y, name=y_name)
    parts = _frame(x_axis, y_axis, x_name, y_name, size)
    falls = sum(float(one.y[0]) - float(one.y[-1]) for one in series) > 0
    legend_at = (_LEFT + width) // 2 if falls else _LEFT + 12  # where curves leave room
    for number, one in enumerate(series):
        colour = COLOURS[(number if one.colour is None else one.colour) % len(COLOURS)]
        parts += _drawn(one, x_axis, y_axis, colour)
        parts += _legend(one.name, legend_at, _TOP + 16 + 17 * number, colour)
    style = "font: 12px sans-serif; background: white"
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" style="{style}">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n{body}\n</svg>\n'
    )


def _legend(name: str, x: int, y: int, colour: str) -> list[str]:
    return [
        f'<rect x="{x}" y="{y - 8}" width="14" height="4" fill="{colour}"/>',
        f'<text x="{x + 20}" y="{y}">{escape(name)}</text>',
    ]


def _axis(values: np.ndarray, first: float, last: float, *, is_log: bool, name: str) -> _PlotAxis:
    if not np.isfinite(values).all():
        raise ValueError(f"values of {name!r} must be finite.")
    if is_log and (values <= 0).any():
        raise ValueError(f"values of {name!r} must be positive for a logarithmic axis.")
    low, high = float(values.min()), float(values.max())
    if is_log:
        low, high = (low / 1.1, high * 1.1)
    elif high == low:
        low, high = low - 1, high + 1
    else:
        low, high = min(low, 0.0) if low < 0.2 * high else low, high + 0.04 * (high - low)
    return _PlotAxis(low, high, first, last, is_log)


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, … that is not less."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.999)


def _frame(
    x_axis: _PlotAxis, y_axis: _PlotAxis, x_name: str, y_name: str, size: tuple
) -> list[str]:
    width, height = size
    bottom, right = height - _BOTTOM, width - _RIGHT
    parts = []
    for tick in x_axis.ticks():
        x = float(x_axis.at(np.array(tick)))
        parts.append(_line(x, _TOP, x, bottom))
        parts.append(_text(x, bottom + 17, f"{tick:g}", "middle"))
    for tick in y_axis.ticks():
        y = float(y_axis.at(np.array(tick)))
        parts.append(_line(_LEFT, y, right, y))
        parts.append(_text(_LEFT - 6, y + 4, f"{tick:g}", "end"))
    parts.append(_text((_LEFT + right) / 2, height - 12, x_name, "middle"))
    turned = f'transform="rotate(-90 16 {(_TOP + bottom) / 2:.0f})"'
    parts.append(_text(16, (_TOP + bottom) / 2, y_name, "middle", turned))
    return parts


def _line(x0: float, y0: float, x1: float, y1: float) -> str:
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="#ddd"/>'


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'


def _drawn(one: PlotSeries, x_axis: _PlotAxis, y_axis: _PlotAxis, colour: str) -> list[str]:
    x, y = x_axis.at(np.asarray(one.x)), y_axis.at(np.asarray(one.y))
    if one.kind == "points":
        return [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.6" fill="{colour}"/>'
                for a, b in zip(x.tolist(), y.tolist(), strict=True)]  # fmt: skip
    if one.kind == "band":
        if one.to is None:
            raise ValueError(f"the band {one.name!r} needs `to`, its other edge.")
        other = y_axis.at(np.asarray(one.to))
        points = _points(np.concatenate([x, x[::-1]]), np.concatenate([y, other[::-1]]))
        return [f'<polygon points="{points}" fill="{colour}" fill-opacity="0.25"/>']
    points = _points(x, y)
    return [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>']


def _points(x: np.ndarray, y: np.ndarray) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))

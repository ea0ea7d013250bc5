"""Curves as PNG files, drawn with NumPy and zlib: lines, axes and numbers, nothing else."""

import os
import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from tremula.base.storage.atomic_file import write_bytes

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 400, 80, 20, 30, 50
_INK, _GRID = (40, 40, 40), (220, 220, 220)
_LINES = (
    (31, 97, 196), (214, 132, 10), (18, 150, 130), (214, 70, 60), (120, 100, 220), (110, 140, 30),
)  # fmt: skip
# Digits and signs in 3 × 5 cells, a row of three bits each, top first.
_GLYPHS = {
    "0": "75557", "1": "26227", "2": "71747", "3": "71717", "4": "55711", "5": "74717",
    "6": "74757", "7": "71111", "8": "75757", "9": "75717", ".": "00002", "-": "00700",
    "k": "45655", "M": "57755", "G": "74557", "T": "72222", "m": "06755", "u": "05557",
    "s": "03762", " ": "00000", ",": "00024", "=": "07070",
}  # fmt: skip


def shown(value: float) -> str:
    """A number in few characters: 1472, 12.5k, 1.85G."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (limit if unit != 'k' else 1e3):.4g}{unit}"
    return f"{value:.4g}"


Line = tuple[Sequence[float], Sequence[float]]


def draw_curves(path: str | os.PathLike[str], lines: Sequence[Line]) -> Path:
    """Draw curves through points (x, y), each in its own colour, with y from zero."""
    image = np.full((_HEIGHT, _WIDTH, 3), 255, np.uint8)
    xs = sorted({value for x, _ in lines for value in x})
    y_high = max([*(value for _, y in lines for value in y), 1e-30]) * 1.05
    across, down = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(a: float, b: float) -> tuple[int, int]:
        share = (a - xs[0]) / (xs[-1] - xs[0]) if xs[-1] > xs[0] else 0.5
        return _LEFT + round(share * across), _HEIGHT - _BOTTOM - round(b / y_high * down)

    for i in range(6):
        row = place(xs[0], y_high * i / 5)[1]
        image[row, _LEFT : _WIDTH - _RIGHT] = _GRID
        _write(image, shown(y_high * i / 5), _LEFT - 8, row - 5, to_left=True)
    image[_TOP : _HEIGHT - _BOTTOM, _LEFT] = _INK
    for number, (x, y) in enumerate(lines):
        points = [place(a, b) for a, b in sorted(zip(x, y, strict=True))]
        _curve(image, points, _LINES[number % len(_LINES)])
    free = -_WIDTH
    for value in xs:
        column, label = place(value, 0)[0], shown(value)
        if column - 4 * len(label) >= free:
            _write(image, label, column, _HEIGHT - _BOTTOM + 10)
            free = column + 4 * len(label) + 8
    write_bytes(path, png(image))
    return Path(path)


def _curve(image: np.ndarray, points: list[tuple[int, int]], colour: tuple[int, int, int]) -> None:
    for (x0, y0), (x1, y1) in pairwise(points):
        _line(image, x0, y0, x1, y1, colour)
    for column, row in points:
        image[max(0, row - 3) : row + 4, max(0, column - 3) : column + 4] = colour


def _line(
    image: np.ndarray, x0: int, y0: int, x1: int, y1: int, colour: tuple[int, int, int]
) -> None:
    n = max(abs(x1 - x0), abs(y1 - y0), 1)
    columns = np.rint(np.linspace(x0, x1, n + 1)).astype(int)
    rows = np.rint(np.linspace(y0, y1, n + 1)).astype(int)
    for shift in (0, 1):
        image[np.clip(rows + shift, 0, _HEIGHT - 1), columns] = colour


def _write(image: np.ndarray, text: str, column: int, row: int, *, to_left: bool = False) -> None:
    """Text in glyphs at twice their size, centred on a column or to its left."""
    width = 8 * len(text)
    at = column - width if to_left else column - width // 2
    for character in text:
        cells = [[int(bit) for bit in f"{int(c):03b}"] for c in _GLYPHS.get(character, "00000")]
        glyph = np.kron(np.array(cells, bool), np.ones((2, 2), bool))
        if at >= 0 and at + 6 <= _WIDTH and row >= 0 and row + 10 <= _HEIGHT:
            image[row : row + 10, at : at + 6][glyph] = _INK
        at += 8


def png(image: np.ndarray) -> bytes:
    """uint8[height, width, 3] as a PNG file."""
    height, width, _ = image.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = np.concatenate((np.zeros((height, 1), np.uint8), image.reshape(height, -1)), axis=1)
    data = zlib.compress(rows.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")

"""The text of PrintTensor: aligned values in brackets, rows split, large tensors summarised."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tremula.base.errors import InvalidOption, TypeMismatch, suggest

FLOAT_FORMATS = ("auto", "fixed", "scientific", "none")
ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class PrintTensorFmt:
    """How a tensor is printed.

    `digits` counts all digits of a float: 8 gives 1.4962566 and 1.4962566e+00. 0 prints each value
    as short as it can be, unaligned. `max_line_width` 0 means lines of any length. Tensors of more
    than `summarise_threshold` elements show `edge_items` at both ends of each long dimension.
    """

    summarise_threshold: int = 1000
    edge_items: int = 3
    max_line_width: int = 75
    digits: int = 8
    float_format: str = "auto"
    separator: str = " "
    open_bracket: str = "["
    close_bracket: str = "]"

    def __post_init__(self) -> None:
        for name in ("float_format", "separator", "open_bracket", "close_bracket"):
            if not isinstance(getattr(self, name), str):
                raise InvalidOption(
                    f"{name} of PrintTensorFmt must be a text, got {getattr(self, name)!r}.",
                    hint=f"the default is {getattr(type(self), name)!r}",
                )
        if self.float_format not in FLOAT_FORMATS:
            raise InvalidOption(
                f"PrintTensorFmt has no float_format {self.float_format!r}.",
                hint=suggest(self.float_format, FLOAT_FORMATS),
            )
        for name in ("summarise_threshold", "edge_items", "max_line_width", "digits"):
            if getattr(self, name) < 0:
                raise InvalidOption(
                    f"{name} of PrintTensorFmt must be at least 0, got {getattr(self, name)}.",
                    hint="use PrintTensorFmt.disabled() to print everything as it is",
                )

    @classmethod
    def disabled(cls) -> "PrintTensorFmt":
        """No alignment, no summary, no splitting of rows."""
        return cls(
            summarise_threshold=np.iinfo(np.int64).max,
            max_line_width=0,
            digits=0,
            float_format="none",
        )


DEFAULT_FORMAT = PrintTensorFmt()


def format_tensor(title: str, array: np.ndarray, fmt: PrintTensorFmt = DEFAULT_FORMAT) -> str:
    """The text PrintTensor prints, without the final newline.

    Rank 1 stands on the line of its title; of a higher rank, each row stands on its own line,
    indented by one blank per level, and the closing bracket stands alone. Rows have no separator
    between them; what does not fit on a row's line is indented by two blanks more.
    """
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise TypeMismatch(
            f"PrintTensor cannot print elements of type {array.dtype}.",
            hint="print bool, integer or floating point data",
        )
    shown, has_gap = _summarised(array, fmt)
    words = iter(_words(shown.ravel(), fmt))
    prefix = f"{title}: " if title else ""
    if shown.ndim == 0:
        return prefix + next(words)
    lines = _lines(shown.shape, has_gap, words, prefix, 0, fmt)
    return "\n".join(lines)


def _summarised(array: np.ndarray, fmt: PrintTensorFmt) -> tuple[np.ndarray, tuple[bool, ...]]:
    """The elements to show, and for each dimension whether some were left out in its middle."""
    if array.size <= fmt.summarise_threshold:
        return array, (False,) * array.ndim
    edge = fmt.edge_items
    has_gap = tuple(n > 2 * edge for n in array.shape)
    shown_indices = [
        np.r_[0:edge, n - edge : n] if is_cut else np.arange(n)
        for n, is_cut in zip(array.shape, has_gap, strict=True)
    ]
    return array[np.ix_(*shown_indices)], has_gap


def _words(values: np.ndarray, fmt: PrintTensorFmt) -> list[str]:
    """The text of each value, all of one width unless `digits` is 0."""
    if values.dtype.kind == "b":
        words = [str(int(value)) for value in values]
    elif values.dtype.kind in "iu":
        words = [str(value) for value in values.tolist()]
    else:
        words = _float_words(values, fmt)
    if fmt.digits == 0 or not words:
        return words
    width = max(map(len, words))
    return [word.rjust(width) for word in words]


def _float_words(values: np.ndarray, fmt: PrintTensorFmt) -> list[str]:
    if fmt.digits == 0 or fmt.float_format == "none":
        return [str(value) for value in values]  # the shortest text that reads back the same
    magnitudes = np.abs(values[np.isfinite(values) & (values != 0)].astype(np.float64))
    decimals = _decimals(magnitudes, fmt.digits)
    is_fixed = fmt.float_format == "fixed" or (
        fmt.float_format == "auto" and _fits_fixed(magnitudes, decimals, fmt.digits)
    )
    spec = f".{decimals}f" if is_fixed else f".{fmt.digits - 1}e"
    return [format(value, spec) for value in values.tolist()]


def _decimals(magnitudes: np.ndarray, digits: int) -> int:
    """Digits after the point that leave room for those of the largest value before it."""
    largest = magnitudes.max(initial=1.0)
    return max(0, digits - 1 - math.floor(math.log10(largest)))


def _fits_fixed(magnitudes: np.ndarray, decimals: int, digits: int) -> bool:
    """Whether, in fixed notation, the smallest value keeps half its digits and none is too long."""
    if not magnitudes.size:
        return True
    n_kept = decimals + 1 + math.floor(math.log10(magnitudes.min()))
    return n_kept >= digits // 2 and magnitudes.max() < 10.0 ** min(digits, 308)


def _lines(
    shape: tuple[int, ...],
    has_gap: tuple[bool, ...],
    words: Iterator[str],
    start: str,
    level: int,
    fmt: PrintTensorFmt,
) -> list[str]:
    """Lines of one bracket: `start` comes before it on its first line."""
    if len(shape) == 1:
        row = [next(words) for _ in range(shape[0])]
        if has_gap[0]:
            row.insert(len(row) // 2, ELLIPSIS)
        return _row(row, start, " " * (level + 2), fmt)
    inside = " " * (level + 1)
    blocks = [
        _lines(shape[1:], has_gap[1:], words, inside, level + 1, fmt) for _ in range(shape[0])
    ]
    if has_gap[0]:
        blocks.insert(len(blocks) // 2, [inside + ELLIPSIS])
    if not blocks:
        return [start + fmt.open_bracket + fmt.close_bracket]
    middle = [line for block in blocks for line in block]
    return [start + fmt.open_bracket, *middle, " " * level + fmt.close_bracket]


def _row(words: list[str], start: str, indent: str, fmt: PrintTensorFmt) -> list[str]:
    """One row, split where it would grow too long; what follows a split is indented further."""
    lines: list[str] = []
    line, is_fresh = start + fmt.open_bracket, True
    for i, word in enumerate(words):
        end = fmt.close_bracket if i == len(words) - 1 else fmt.separator.rstrip()
        longer = line + word if is_fresh else line + fmt.separator + word
        if not is_fresh and 0 < fmt.max_line_width < len(longer + end):
            lines.append((line + fmt.separator).rstrip())
            longer = indent + word
        line, is_fresh = longer, False
    return [*lines, line + fmt.close_bracket]

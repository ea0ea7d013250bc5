"""Kinds of arguments that several commands take, each checked before any work begins."""

import argparse
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from tremula.base.errors import suggest
from tremula.hardware import CHIPS


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A whole number from `least` to `most`."""
    wanted = (
        f"a whole number from {least} to {most:,}" if most else f"a whole number, {least} or more"
    )

    def parsed(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected {wanted}, got {text[:40]!r}") from None
        if number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"expected {wanted}, got {number:,}")
        return number

    return parsed


def positive(text: str) -> float:
    """A number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text[:40]!r}")
    return number


def port(text: str) -> int:
    """A port to listen on; 0 is any free one."""
    return whole(0, 65_535)(text)


def one_of(names: Iterable[str], what: str) -> Callable[[str], str]:
    """One of some names, in any case; another one is answered with the nearest."""
    known = list(names)

    def parsed(text: str) -> str:
        if text.lower() not in known:
            advice = suggest(text.lower(), known)
            raise argparse.ArgumentTypeError(f"there is no {what} {text[:40]!r}; {advice}")
        return text.lower()

    return parsed


chip_name = one_of(CHIPS, "chip")


def output_file(text: str) -> Path:
    """A file that can be written, as far as can be told without writing it."""
    path = Path(text)
    if not text or path.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file to write, got the folder {text!r}")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {str(path.parent)!r}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"you may not write {text!r}")
    return path


def input_file(text: str) -> Path:
    """For `type=`: a file that exists."""
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text} is not a file")
    return path


def output_folder(text: str) -> Path:
    """A folder, made if there is none."""
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"cannot make the folder {text!r}: {error.strerror}"
        ) from None
    if not os.access(path, os.W_OK):
        raise argparse.ArgumentTypeError(f"you may not write to {text!r}")
    return path

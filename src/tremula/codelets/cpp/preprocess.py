"""A codelet file → self-contained text: user code expanded, other headers still #included."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tremula.base.errors import GraphObjectLoadError
from tremula.codelets.cpp.toolchain import (
    HEADERS,
    LANGUAGE_FLAGS,
    Compiler,
    UserFlags,
    compilation_error,
    system_include_directories,
)

_MARKER = re.compile(r'^# (\d+) "((?:[^"\\]|\\.)*)"((?: \d)*)$')
_SUPERVISOR = re.compile(r'\btarget\s*\(\s*"(?:supervisor|worker)"\s*\)')
TEXT_NAME = "codelet source"  # the file name of code given as text


@dataclass(frozen=True, slots=True)
class Unit:
    """One source file, ready to be scanned and compiled anywhere."""

    file: str
    text: str  # with line markers, so that messages name the user's lines


def preprocess(path: Path | None, text: str, flags: UserFlags, compiler: Compiler) -> Unit:
    """Expand a file (or `text` if `path` is None) and collapse headers that are not the user's.

    So the result is small and does not depend on this computer.
    """
    directory = str(path.parent) if path else "."
    arguments = [
        "-E", *LANGUAGE_FLAGS, flags.optimise, "-D__POPC__=1", f"-I{HEADERS}", f"-I{directory}",
        *flags.preprocess, "-include", "tremula/compat.hpp", "-x", "c++",
    ]  # fmt: skip
    file = str(path) if path else TEXT_NAME
    source = "" if path else f'# 1 "{TEXT_NAME}"\n{text}'
    done = compiler.run([*arguments, file if path else "-"], source)
    if done.returncode != 0:
        raise compilation_error(done.stderr, file) from RuntimeError(done.stderr)
    # g++ rejects the targets of popc; which thread runs a codelet is known from its base class.
    return Unit(file, _SUPERVISOR.sub("unused", collapse(done.stdout, compiler)))


def read_source(path: Path) -> Path:
    """`path`, made absolute, if it can be read."""
    if not path.is_file():
        raise GraphObjectLoadError(
            f"codelet file {str(path)!r} does not exist (looked in {os.getcwd()}).",
            hint="give a path relative to where the program runs, or Path(__file__).parent / name",
        )
    return path.resolve()


def collapse(text: str, compiler: Compiler) -> str:
    """Replace the expansion of every foreign header by the #include that asks for it."""
    out: list[str] = []
    depth = 0  # of foreign headers
    for line in text.split("\n"):
        marker = _MARKER.match(line)
        if marker is None:
            if depth == 0:
                out.append(line)
            continue
        file, marks = marker[2], marker[3].split()
        if depth:
            depth += ("1" in marks) - ("2" in marks)
        elif "1" in marks and _is_foreign(file, marks):
            depth = 1
            out.append(f"#include <{_include_name(file, compiler)}>")
        if depth == 0 and not file.startswith("<"):
            out.append(f'# {marker[1]} "{file}"')
    return "\n".join(out)


def _is_foreign(file: str, marks: list[str]) -> bool:
    return "3" in marks or os.path.normpath(file).startswith(str(HEADERS))


def _include_name(file: str, compiler: Compiler) -> str:
    """The name by which any installation finds this header."""
    file = os.path.normpath(file)
    for directory in (str(HEADERS), *system_include_directories(compiler)):
        if file.startswith(directory + os.sep):
            return file[len(directory) + 1 :]
    return file


def without_markers(text: str) -> str:
    """`text` without line markers: equal for the same code in different places."""
    return "\n".join(line for line in text.split("\n") if not _MARKER.match(line))

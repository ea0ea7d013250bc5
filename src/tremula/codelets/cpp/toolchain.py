"""The C++ compiler: finding it, its flags, running it, and turning its messages into errors."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tremula.base.errors import GraphProgramCompilationError, PoplarError
from tremula.base.source import Source, source_at

HEADERS = Path(__file__).resolve().parent.parent / "headers"
OLDEST_MAJOR = 12  # the first g++ with a 16-bit float in C++

# docs/cpp-codelets.md says why each is needed.
LANGUAGE_FLAGS = (
    "-std=c++17", "-w", "-fpermissive", "-fno-access-control", "-fno-exceptions", "-fno-rtti",
    "-fno-threadsafe-statics", "-fno-strict-aliasing", "-fwrapv",
    "-ffp-contract=off", "-fexcess-precision=16", "-fno-math-errno", "-fno-trapping-math",
    "-fPIC", "-fvisibility=hidden", "-fdiagnostics-color=never", "-fno-diagnostics-show-caret",
)  # fmt: skip

_ERROR = re.compile(r"^(?P<file>[^\n]*?):(?P<line>\d+)(?::\d+)?: (?:fatal )?error: (?P<text>.*)$")
_PLACE = re.compile(r"^(?:In file included from |\s+from )?(?P<file>[^\s:][^\n:]*):(?P<line>\d+)")
N_FOLDERS_UP = 5  # how far up a missing header is looked for
_OPTIMISATION = re.compile(r"-O(?:[0-3sg]|fast)?$")


@dataclass(frozen=True, slots=True)
class Compiler:
    """A g++: its path, and what identifies the code it generates."""

    path: str
    identity: str  # version and machine
    native_flags: tuple[str, ...]  # () where it does not know this processor
    native_identity: str  # what -march=native means here

    def run(self, arguments: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
        """Run it with `text` on standard input; the caller looks at the return code."""
        environment = os.environ | {"LC_ALL": "C"}
        return subprocess.run(
            [self.path, *arguments],
            check=False,
            input=text,
            capture_output=True,
            text=True,
            errors="replace",  # the compiler quotes what a file holds, text or not
            env=environment,
        )


def find_compiler() -> Compiler:
    """The g++ to use: TREMULA_CXX, else g++ on the PATH."""
    name = os.environ.get("TREMULA_CXX", "g++")
    path = shutil.which(name)
    if path is None:
        raise GraphProgramCompilationError(
            f"C++ codelets need a C++ compiler, but {name!r} was not found.",
            hint="install g++ 12 or newer (apt install g++, dnf install gcc-c++, conda install gxx)"
            ", or set TREMULA_CXX to its path",
        )
    return _examine(path)


@lru_cache
def _examine(path: str) -> Compiler:
    version = _output([path, "-dumpfullversion"])
    major = int(version.split(".")[0]) if version[:1].isdigit() else 0
    if major < OLDEST_MAJOR:
        raise GraphProgramCompilationError(
            f"{path} is version {version or 'unknown'}; C++ codelets need g++ {OLDEST_MAJOR}"
            " or newer.",
            hint="install a newer g++, or set TREMULA_CXX to the path of one",
        )
    native = _output([path, "-march=native", "-Q", "--help=target"])
    return Compiler(
        path,
        f"{version} {_output([path, '-dumpmachine'])}",
        ("-march=native",) if native else (),
        hashlib.sha256(native.encode()).hexdigest()[:16],
    )


def _output(command: list[str]) -> str:
    """What a command prints, or "" if it fails."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


@lru_cache
def system_include_directories(compiler: Compiler) -> tuple[str, ...]:
    """Where the compiler looks for <…>, longest first."""
    printed = compiler.run(["-v", "-E", "-x", "c++", "-"]).stderr
    _, _, rest = printed.partition("search starts here:\n#include <...> search starts here:\n")
    listed = rest.partition("End of search list.")[0].split("\n")
    directories = {os.path.normpath(line.strip()) for line in listed if line.strip()}
    return tuple(sorted(directories, key=len, reverse=True))


@lru_cache
def headers_identity() -> str:
    """A hash of our own headers: changing them rebuilds every codelet."""
    digest = hashlib.sha256()
    for path in sorted(p for p in HEADERS.rglob("*") if p.is_file() and p.suffix != ".pyc"):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class UserFlags:
    """What is kept of the flags given to add_codelets; the rest is for popc only."""

    preprocess: tuple[str, ...]  # -I and -D
    optimise: str  # -O3 unless given


def parse_flags(flags: str) -> UserFlags:
    """Keep -I, -D and -O; drop what only the real compiler understands."""
    include_and_define: list[str] = []
    optimise = "-O3"
    words = iter(shlex.split(flags))
    for word in words:
        if word in ("-I", "-D"):
            include_and_define.append(word + next(words, ""))
        elif word.startswith(("-I", "-D")):
            include_and_define.append(word)
        elif _OPTIMISATION.match(word):
            optimise = word
    return UserFlags(tuple(include_and_define), optimise)


def checked_optimisation(flag: str) -> str:
    """`flag` if it is an optimisation level: the only flag a saved executable may carry."""
    if not _OPTIMISATION.match(flag):
        raise GraphProgramCompilationError(
            f"a saved C++ codelet carries the flag {flag!r}; only -O… is allowed.",
            hint="save the executable again from its source",
        )
    return flag


def compilation_error(stderr: str, what: str) -> PoplarError:
    """The error for a failed compilation: the first message, at the user's line."""
    lines = stderr.splitlines()
    for i, line in enumerate(lines):
        match = _ERROR.match(line)
        if match is None:
            continue
        hint = _hint_of_missing_header(match["text"], what)
        return GraphProgramCompilationError(
            f"{what} does not compile: {match['text']}",
            source=_user_place([line, *reversed(lines[:i]), *lines[i + 1 :]]),
            hint=hint
            or "its cause has the compiler's full output; `tremula codelets FILE` prints it",
        )
    return GraphProgramCompilationError(
        f"{what} does not compile: {stderr.strip()[:500] or 'the compiler did not say why'}",
        hint="compile the file with g++ by itself",
    )


def _hint_of_missing_header(text: str, file: str) -> str:
    """How to give a header's folder, which is named if it is near; "" if no header lacks."""
    header, _, problem = text.partition(": ")
    if "No such file" not in problem:
        return ""
    advice = "flags='-I…' to add_codelets, or --flags='-I…' to the command"
    for folder in Path(file).resolve().parents[:N_FOLDERS_UP] if Path(file).is_file() else ():
        for place in (folder, folder / "include", folder / "src"):
            if (place / header).is_file():
                return f"it is in {place}: give {advice.replace('-I…', f'-I{place}')}"
    return f"give the folder of {header}: {advice}"


def _user_place(lines: list[str]) -> Source | None:
    """The first place named in `lines` that is neither ours nor the system's."""
    for line in lines:
        match = _PLACE.match(line)
        if match and not match["file"].startswith((str(HEADERS), "/usr/", "<", "tremula ")):
            return source_at(match["file"], int(match["line"]))
    return None

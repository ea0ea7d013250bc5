"""Whatever a user, a file or the system does wrong becomes a message and an exit code, here.

A traceback is left for our own bugs. An error that passed through the user's own code shows that
code's frames and no others.
"""

import argparse
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import IO, NoReturn

from tremula.base.errors import PoplarError, suggest
from tremula.base.requirements import explained
from tremula.base.source import INSTALLED, is_framework_code, source_at

FAILED, INTERRUPTED = 1, 130  # 130: as shells report an end by Ctrl-C
_AGAIN_S = 0.1
_PACKAGES = Path(__file__).resolve().parents[2]
# Our own package, the suites of `tremula bench` in a checkout, and everything that was installed.
_OURS = tuple(
    f"{folder}{os.sep}"
    for folder in (
        _PACKAGES / "tremula",
        *(_PACKAGES.parent / name for name in ("benchmarks", "tests")),
    )
)
_UNKNOWN = "unrecognized arguments: "
_NEAR = 0.7  # how alike an option must be to be suggested, up to 1


# -- words -----------------------------------------------------------------------------------------


class CommandParser(argparse.ArgumentParser):
    """`argparse`, whose errors name the nearest word that exists; also for its subparsers."""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Argparse's hook for `choices` and names of subcommands."""
        if action.choices is not None and value not in action.choices:
            what = action.metavar if isinstance(action.metavar, str) else action.dest
            advice = suggest(str(value), map(str, action.choices))
            raise argparse.ArgumentError(None, f"there is no {what} {str(value)[:40]!r}; {advice}")

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit with code 2."""
        if message.startswith(_UNKNOWN):
            unknown = message.removeprefix(_UNKNOWN).split()[0].partition("=")[0]
            near = get_close_matches(unknown, set(_options_of(self)), 1, _NEAR)
            message += f"; did you mean {near[0]!r}?" if near else ""
        super().error(message)


def actions_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The options and arguments that a parser knows, in the order in which they were added."""
    return parser._actions


def _options_of(parser: argparse.ArgumentParser) -> Iterable[str]:
    """All options of a parser and its subcommands."""
    for action in actions_of(parser):
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _options_of(inner)


# -- errors ----------------------------------------------------------------------------------------


def guarded(
    action: Callable[[], int | None], *, shows_traceback: bool, is_process: bool = False
) -> int:
    """Run a command and return its exit code; `is_process`: the process ends with it."""
    try:
        with _interrupts_arrive():
            code = action() or 0
        _flush(sys.stdout)
    except BrokenPipeError:  # the reader (`| head`) is gone, which is its right
        _silence(sys.stdout)
        return FAILED
    except KeyboardInterrupt:
        if is_process:  # another one, or one sent again, would break into the end
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if shows_traceback:
            _tell(traceback.format_exc())
        else:
            _tell("\ninterrupted")
        return INTERRUPTED
    except Exception as error:
        message = traceback.format_exc() if shows_traceback else message_of(error)
        if message is None:
            raise
        _tell(message)
        return FAILED
    else:
        return code
    finally:
        _end_output()


@contextmanager
def _interrupts_arrive() -> Iterator[None]:
    """A Ctrl-C where Python ignores exceptions, in a destructor say, is sent again soon."""
    before, timers = sys.unraisablehook, []

    def hook(ignored: "sys.UnraisableHookArgs") -> None:
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            before(ignored)
            return
        main = threading.main_thread().ident or 0
        timers.append(threading.Timer(_AGAIN_S, signal.pthread_kill, (main, signal.SIGINT)))
        timers[-1].daemon = True
        timers[-1].start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
        for timer in timers:
            timer.cancel()


def message_of(error: Exception) -> str | None:
    """What to say to a user about an error; None if it is our bug, which wants a traceback."""
    mine = _users_frames(error)
    missing = explained(error) if isinstance(error, ImportError) else None
    if missing is not None and not mine:
        return f"error: {missing.what}.\n  try: {missing.hint}"
    if isinstance(error, PoplarError):
        if error.source is None and mine and "\n  at " not in error.what:
            at = source_at(mine[-1].filename, mine[-1].lineno or 0)
            error = PoplarError(error.what, source=at, hint=error.hint)
        return f"error: {error}"
    if mine or (isinstance(error, SyntaxError) and _is_users(error.filename or "")):
        is_unsaid = missing is not None and missing.hint not in str(error)
        advice = f"\n  try: {missing.hint}" if missing is not None and is_unsaid else ""
        return _users_traceback(error).rstrip("\n") + advice
    if isinstance(error, OSError):
        return f"error: {_about_system(error)}"
    if isinstance(error, MemoryError):
        reason = f" ({error})" if str(error) else ""
        return f"error: this computer's memory is full{reason}.\n  try: a smaller program"
    return None


def _about_system(error: OSError) -> str:
    """As the system says it, with the file it is about."""
    reason = error.strerror or str(error) or type(error).__name__
    names = [repr(os.fspath(n)) for n in (error.filename, error.filename2) if isinstance(n, str)]
    return f"{' and '.join(names)}: {reason}." if names else f"{reason}."


# -- the user's own frames -------------------------------------------------------------------------


def _is_users(file: str) -> bool:
    """Whether a file is the user's own: not ours, not Python's, not installed."""
    return not (
        file.startswith((*_OURS, "<"))
        or is_framework_code(file)
        or any(name in Path(file).parts for name in INSTALLED)
    )


def _users_frames(error: BaseException) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if _is_users(frame.filename)]


def _users_traceback(error: Exception) -> str:
    """A traceback as Python prints it, of the user's frames alone."""
    summary = traceback.TracebackException.from_exception(error)
    n_hidden = _keep_users_frames(summary)
    note = "(frames of libraries are left out; --traceback shows them)" if n_hidden else ""
    return "".join(summary.format()) + note


def _keep_users_frames(summary: traceback.TracebackException) -> int:
    """Drop other frames, also of causes; causes without any frame of the user's go altogether."""
    mine = [frame for frame in summary.stack if _is_users(frame.filename)]
    n_hidden = _n_within(summary.stack, mine)
    summary.stack = traceback.StackSummary.from_list(mine)
    for one in summary.exceptions or ():  # of an exception group
        n_hidden += _keep_users_frames(one)
    for name in ("__cause__", "__context__"):
        earlier = getattr(summary, name)
        if earlier is not None:
            n_hidden += _keep_users_frames(earlier)
            if not earlier.stack:
                setattr(summary, name, None)
    return n_hidden


def _n_within(frames: traceback.StackSummary, users: list[traceback.FrameSummary]) -> int:
    """Dropped frames below the user's first: those above it only start the script."""
    first = frames.index(users[0]) if users else len(frames)
    return len(frames) - first - len(users)


# -- streams ---------------------------------------------------------------------------------------


def prepare_output() -> None:
    """Let streams that lack a character print something else instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # not a text file, or already closed
            stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue]


def _tell(message: str) -> None:
    with suppress(OSError):
        print(message.rstrip("\n"), file=sys.stderr, flush=True)


def _flush(stream: IO[str] | None) -> None:
    if stream is not None:
        stream.flush()


def _end_output() -> None:
    """Python flushes again at its end and would complain there about what was already reported."""
    try:
        _flush(sys.stdout)
    except (OSError, ValueError):
        _silence(sys.stdout)


def _silence(stream: IO[str]) -> None:
    with suppress(OSError, ValueError):  # a stream of a test has no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

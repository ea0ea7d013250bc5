"""What a kind of case is, and how one case is examined."""

import hashlib
import io
import json
import signal
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

Case = dict[str, Any]  # plain JSON

PASSED, SET_ASIDE, ILLEGAL, FAILED = "passed", "set aside", "illegal", "failed"
MOST_SECONDS = 120  # for one case: a small case that takes longer has met an endless loop


class CheckFailure(Exception):
    """An oracle disagrees. `signature` says which one, in words that smaller cases share."""

    def __init__(self, signature: str, detail: str = ""):
        self.signature, self.detail = signature, detail
        super().__init__(f"{signature}: {detail}")


class SetAside(Exception):
    """The case decides nothing: its plain result moves by itself, or it is documented to differ."""


class IllegalCase(Exception):
    """A case that breaks the rules of its kind; only shrinking makes such cases."""


class Kind(Protocol):
    """A kind of case: a generator and its oracles."""

    name: str

    def generate(self, random: Random) -> Case:
        """Make a legal case."""
        ...

    def check(self, case: Case) -> None:
        """Return if all oracles agree; otherwise raise one of the exceptions above."""
        ...

    def features(self, case: Case) -> Iterable[str]:
        """Name what the case covers, as `group:item`: operations, types, options."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a case."""

    status: str
    signature: str = ""
    detail: str = ""


def random_of(kind: str, seed: int) -> Random:
    """The random numbers of a seed: kinds with equal seeds are independent."""
    digest = hashlib.sha256(f"{kind}:{seed}".encode()).digest()
    return Random(int.from_bytes(digest[:8], "little"))


def plain(case: Case) -> Case:
    """The case as a file would hold it: tuples are lists, keys are text."""
    return json.loads(json.dumps(case))


def examine(kind: Kind, case: Case) -> Outcome:
    """Check a case; whatever is raised becomes an outcome."""
    try:
        with _time_limit(MOST_SECONDS):
            kind.check(case)
    except SetAside as why:
        return Outcome(SET_ASIDE, str(why))
    except IllegalCase as why:
        return Outcome(ILLEGAL, str(why))
    except CheckFailure as failure:
        return Outcome(FAILED, failure.signature, failure.detail)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - any other exception is what a fuzzer looks for
        if missing := _missing_library(error):
            return Outcome(SET_ASIDE, f"{missing} is not installed")
        return Outcome(FAILED, raised_signature(error), _traceback_text(error))
    return Outcome(PASSED)


def _missing_library(error: BaseException) -> str:
    """The library that an error says to be missing; ours never are."""
    if not isinstance(error, ImportError):
        return ""
    if name := error.name or "":
        return "" if name.partition(".")[0] in ("tremula", "tools", "tests") else name
    text = str(error)
    extra = text.partition("tremula[")[2].partition("]")[0]
    return f"tremula[{extra}]" if extra and "not installed" in text else ""


@contextmanager
def quiet() -> Iterator[None]:
    """Warnings and logs of cases are not shown."""
    with redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def raised_signature(error: BaseException) -> str:
    """The type of an error and the function that raised it: equal for errors of one cause."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/tremula/" in f.filename] or list(frames)
    where = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "nowhere"
    return f"raised {type(error).__name__} in {where}"


def _traceback_text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-4000:]


@contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise CheckFailure(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)

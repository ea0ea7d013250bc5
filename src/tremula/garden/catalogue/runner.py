"""Runs an application, and checks its results against what its manifest expects."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from tremula.base.errors import InvalidOption, PoplarError, RuntimeFailure
from tremula.base.requirements import EXTRAS
from tremula.garden.application import Findings, Settings
from tremula.garden.catalogue.catalogue import SHIPPED
from tremula.garden.catalogue.expected import misses
from tremula.garden.catalogue.manifest import Application

if TYPE_CHECKING:
    from tremula.serving.program import ServedProgram

_PACKAGE = "tremula.garden.applications"


def run_application(application: Application, settings: Settings) -> Findings:
    """Run it; one that misses what its manifest expects of the tiny form fails."""
    run = getattr(_imported(application), "run", None)
    if run is None:
        raise RuntimeFailure(
            f"{application.folder / 'main.py'} has no function `run`.",
            hint="def run(settings: Settings) -> Findings",
        )
    try:
        findings = run(settings)
    except ModuleNotFoundError as error:  # of an import inside a function
        raise _missing(application, error) from error
    if not isinstance(findings, Findings):
        raise RuntimeFailure(
            f"run() of {application.name} gave {type(findings).__name__}, not Findings.",
            hint="return tremula.garden.application.Findings(results=…, modelled=…)",
        )
    missed = misses(application.expected, findings.results) if settings.tiny else []
    if missed:
        raise RuntimeFailure(
            f"{application.name} did not reach what its manifest expects.\n  "
            + "\n  ".join(missed),
            hint="look at what it printed; `[expected]` in its manifest holds the limits",
        )
    return findings


def served_application(application: Application, settings: Settings) -> "ServedProgram":
    """The program that an application serves: what `served(settings)` in its main.py returns."""
    module = _imported(application)
    served = getattr(module, "served", None)
    if served is None:
        raise InvalidOption(
            f"{application.name} is not an application that can be served.",
            hint="`tremula garden --technique serving` lists those; a main.py needs a function "
            "`served(settings)` that gives a ServedProgram",
        )
    try:
        return served(settings)
    except ModuleNotFoundError as error:
        raise _missing(application, error) from error


def _imported(application: Application) -> ModuleType:
    is_shipped = application.folder.parent == SHIPPED
    package = f"{_PACKAGE}.{application.name}" if is_shipped else application.name
    if not is_shipped:
        sys.path.insert(0, str(application.folder.parent))
    try:
        return import_module(f"{package}.main")
    except ModuleNotFoundError as error:
        raise _missing(application, error) from error
    except PoplarError:
        raise
    except ImportError as error:  # ours name the extra already
        raise RuntimeFailure(f"{application.name} cannot be imported: {error}") from error


def _missing(application: Application, error: ModuleNotFoundError) -> RuntimeFailure:
    """What to install; a module of ours that is missing is a mistake in the application."""
    name = (error.name or "").split(".")[0]
    if name in {"tremula", application.name}:
        return RuntimeFailure(f"{application.name} imports {error.name}, which does not exist.")
    return RuntimeFailure(
        f"{application.name} needs {name or 'a package'}, which is not installed.",
        hint=install_command(application.needs),
    )


def install_command(needs: tuple[str, ...]) -> str:
    """The command that installs what an application needs."""
    known = extras()
    own = [name for name in needs if name in known]
    others = [name for name in needs if name not in known]
    package = f"'tremula[{','.join(own)}]'" if own else "tremula"
    return " ".join(("pip install", package, *others))


def extras() -> frozenset[str]:
    """The extras of Tremula."""
    return frozenset(EXTRAS)

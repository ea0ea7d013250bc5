"""The exceptions of PopART, and how errors of the compiler and the machine become them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NoReturn

from tremula.base.errors import GraphMemoryAllocationError, PoplarError
from tremula.frontends.popart.enums import RecoveryAction
from tremula.frontends.shared.errors import translated_errors


class popart_exception(PoplarError):
    """Anything that a script did wrong, or that PopART cannot do."""


class popart_internal_exception(popart_exception):
    """A defect of PopART itself."""


class popart_runtime_error(popart_exception):
    """Something failed while a model ran."""


class poplibs_exception(PoplarError):
    """An operation of PopLibs rejected its operands."""


class poplar_exception(PoplarError):
    """The compiler of tile programs rejected a graph."""


class poplar_runtime_error(poplar_exception):
    """A tile program failed while it ran."""


class poplar_application_runtime_error(poplar_runtime_error):
    """A program did something that it must not."""


class poplar_system_runtime_error(poplar_runtime_error):
    """The machine failed while a tile program ran."""


class poplar_recoverable_runtime_error(poplar_system_runtime_error):
    """A failure after which the machine can be used again, after `recoveryAction`."""

    recoveryAction: RecoveryAction = RecoveryAction.IPU_RESET


class poplar_unrecoverable_runtime_error(poplar_system_runtime_error):
    """A failure that needs a repair."""


class poplar_unknown_runtime_error(poplar_system_runtime_error):
    """A failure of an unknown kind."""


class OutOfMemoryException(popart_exception):
    """A tile program does not fit; what it needs is in its report."""

    error: GraphMemoryAllocationError | None = None

    def getSummaryReport(self) -> str:
        """The memory that each tile needs."""
        return str(self.error.report or self.error) if self.error is not None else str(self)

    def getProfilePath(self) -> str:
        """The file of the report, or "" if none was requested."""
        return ""

    def isSuccessful(self) -> bool:
        """Whether the program fits after all: never, since otherwise nothing is raised."""
        return False


OutOfMemoryError = OutOfMemoryException  # what the compiled module calls it


def popart_errors() -> AbstractContextManager[None]:
    """Inside, errors of the compiler and the machine become PopART's, caused by them."""
    return translated_errors((popart_exception, poplar_exception, poplibs_exception), _translate)


def _translate(error: PoplarError) -> popart_exception:
    if not isinstance(error, GraphMemoryAllocationError):
        return popart_exception(error.what, source=error.source, hint=error.hint)
    result = OutOfMemoryException(error.what, source=error.source, hint=error.hint)
    result.error = error
    return result


# Functions that raise one exception each: scripts test their handlers with them.
_RAISED: dict[str, type[PoplarError]] = {
    "_throw_popart_error": popart_exception,
    "_throw_popart_internal_error": popart_internal_exception,
    "_throw_popart_runtime_error": popart_runtime_error,
    "_throw_poplibs_error": poplibs_exception,
    "_throw_poplar_error": poplar_exception,
    "_throw_poplar_runtime_error": poplar_runtime_error,
    "_throw_application_runtime_error": poplar_application_runtime_error,
    "_throw_system_runtime_error": poplar_system_runtime_error,
    "_throw_recoverable_runtime_error": poplar_recoverable_runtime_error,
    "_throw_unrecoverable_runtime_error": poplar_unrecoverable_runtime_error,
    "_throw_unknown_runtime_error": poplar_unknown_runtime_error,
}


def _raiser(kind: type[PoplarError]) -> Callable[[str], NoReturn]:
    def throw(msg: str) -> NoReturn:
        raise kind(msg)

    throw.__doc__ = f"Raise `{kind.__name__}`."
    return throw


globals().update({name: _raiser(kind) for name, kind in _RAISED.items()})

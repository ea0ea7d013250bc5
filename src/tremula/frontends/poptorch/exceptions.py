"""The exceptions of PopTorch: one for what a user can fix, two for a machine that failed."""

from contextlib import AbstractContextManager
from enum import Enum
from typing import NoReturn

from tremula.base.errors import (
    GraphMemoryAllocationError,
    PoplarError,
    RecoverableRuntimeError,
    UnrecoverableRuntimeError,
    poplar_name,
)
from tremula.frontends.shared.errors import translated_errors

PYTHON_ERROR = "poptorch_py_error"


class Error(PoplarError):
    """Anything that went wrong in a PopTorch model.

    `type` names the part that failed, `message` is the text alone, `location` says where it came
    from, if that is known. `str` shows all of them.
    """

    def __init__(self, type: str, message: str, location: str = "", *, hint: str = ""):
        self.type, self.message, self.location = type, message, location
        where = f"\nError raised in:\n{location}" if location else ""
        super().__init__(f"'{type}': {message}{where}", hint=hint)

    def __reduce__(self) -> tuple:
        # Unpickling would call the class with `args`, the whole text; restore the parts instead.
        return _remade, (type(self), dict(self.__dict__), self.args)


class RecoverableError(Error):
    """The machine failed; `recovery_action` brings it back."""

    def __init__(self, type: str, message: str, location: str = "", recovery_action: str = ""):
        self.recovery_action = recovery_action
        super().__init__(type, message, location)


class UnrecoverableError(Error):
    """The machine failed, and cannot be reset."""


def _remade(kind: type[Error], fields: dict, args: tuple) -> Error:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


def createPoptorchError(msg: str) -> Error:  # noqa: N802
    """The error to raise for something a script did wrong."""
    return Error(PYTHON_ERROR, msg)


# Hints for PopTorch scripts, where those for graph programs would not help.
_HINTS: dict[type[PoplarError], str] = {
    GraphMemoryAllocationError: "a smaller micro-batch, more chips (poptorch.BeginBlock), half"
    " precision, poptorch.recomputationCheckpoint, or a smaller memory proportion;"
    " Options.enableProfiling with the engine option debug.allowOutOfMemory shows what is where",
}


def poptorch_errors() -> AbstractContextManager[None]:
    """Inside, errors of the compiler or the machine become PopTorch's `Error`, caused by them.

    Its type is Poplar's name for it: 'poplar_graph_memory_allocation_error'. A machine that failed
    is a `RecoverableError` or an `UnrecoverableError`.
    """
    return translated_errors(Error, _translate)


def _translate(error: PoplarError) -> Error:
    is_poplars = type(error).__module__ == PoplarError.__module__
    kind = f"poplar_{poplar_name(type(error))}" if is_poplars else PYTHON_ERROR
    message = str(PoplarError(error.what, source=error.source))
    if isinstance(error, RecoverableRuntimeError):
        return RecoverableError(kind, message, "", error.recovery_action)
    if isinstance(error, UnrecoverableRuntimeError):
        return UnrecoverableError(kind, message, hint=error.hint)
    return Error(kind, message, hint=_HINTS.get(type(error), error.hint))


class TestErrorType(Enum):
    """The kinds of failure that `_throwTestError` makes, so that handlers can be tested."""

    __test__ = False  # not a test, despite its name

    Poptorch = 0
    Popart = 1
    PopartInternal = 2
    Poplibs = 3
    PoplarUnrecoverable = 4
    PoplarUnknown = 5
    PoplarRecoverableFullReset = 6
    PoplarLinkError = 7


_TEST_ERRORS = {
    TestErrorType.Poptorch: ("poptorch_cpp_error", "a test error of PopTorch"),
    TestErrorType.Popart: ("popart_exception", "a test error of PopART"),
    TestErrorType.PopartInternal: ("popart_internal_exception", "an internal test error of PopART"),
    TestErrorType.Poplibs: ("poplibs_exception", "a test error of PopLibs"),
    TestErrorType.PoplarUnrecoverable: ("poplar_unrecoverable_runtime_error", "a test error"),
    TestErrorType.PoplarUnknown: ("poplar_unknown_runtime_error", "a test error"),
    TestErrorType.PoplarRecoverableFullReset: ("poplar_recoverable_runtime_error", "a test error"),
    TestErrorType.PoplarLinkError: ("poplar_link_error", "a test error\n-lfoo not found"),
}


def throw_test_error(kind: TestErrorType) -> NoReturn:
    """Raise an error of a kind, as a failing machine would."""
    type, message = _TEST_ERRORS[kind]
    location = "  [0] throwTestError::bottomLevel\n  [1] throwTestError::topLevel"
    if kind is TestErrorType.PoplarRecoverableFullReset:
        raise RecoverableError(type, message, location, "FULL_RESET")
    if kind is TestErrorType.PoplarUnrecoverable:
        raise UnrecoverableError(type, message, location)
    raise Error(type, message, location)

"""poptorch.poptorch_core: what used to be native code: errors, and the check of options."""

from tremula.frontends.poptorch.exceptions import (
    Error,
    RecoverableError,
    TestErrorType,
    UnrecoverableError,
)
from tremula.frontends.poptorch.exceptions import throw_test_error as _throwTestError  # noqa: N812
from tremula.frontends.poptorch.options.popart import validate_options as _validateOptions  # noqa: N812

__all__ = [
    "Error",
    "RecoverableError",
    "TestErrorType",
    "UnrecoverableError",
    "_throwTestError",
    "_validateOptions",
    "isCompilingWithDispatcher",
]


def isCompilingWithDispatcher() -> bool:  # noqa: N802
    """Whether tensors of a fake device are recorded: no, ours are real."""
    return False

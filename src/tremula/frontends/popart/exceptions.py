"""The exceptions of PopART, and how errors of the compiler and the machine become them."""

from contextlib import AbstractContextManager

from tremula.base.errors import GraphMemoryAllocationError, PoplarError
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


class OutOfMemoryException(popart_exception):
    """A tile program does not fit; what it needs is in its report."""

    error: GraphMemoryAllocationError | None = None

    def getSummaryReport(self) -> str:
        """The memory that each tile needs."""
        return str(self.error.report or self.error) if self.error is not None else str(self)

    def getProfilePath(self) -> str:
        """The file of the report, or "" if none was requested."""
        return ""


def popart_errors() -> AbstractContextManager[None]:
    """Inside, errors of the compiler and the machine become PopART's, caused by them."""
    return translated_errors(popart_exception, _translate)


def _translate(error: PoplarError) -> popart_exception:
    if not isinstance(error, GraphMemoryAllocationError):
        return popart_exception(error.what, source=error.source, hint=error.hint)
    result = OutOfMemoryException(error.what, source=error.source, hint=error.hint)
    result.error = error
    return result

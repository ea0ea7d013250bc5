"""The exceptions of PopART, and what becomes of errors of the compiler and the machine."""

from collections.abc import Iterator
from contextlib import contextmanager

from tremula.base.errors import GraphMemoryAllocationError, PoplarError


class popart_exception(PoplarError):
    """Anything that a script did wrong, or that PopART cannot do."""


class popart_internal_exception(popart_exception):
    """A mistake of PopART's own."""


class popart_runtime_error(popart_exception):
    """Something failed while a model ran."""


class poplibs_exception(PoplarError):
    """An operation of PopLibs refused its operands."""


class poplar_exception(PoplarError):
    """The compiler of tile programs refused a graph."""


class poplar_runtime_error(poplar_exception):
    """A tile program failed while it ran."""


class OutOfMemoryException(popart_exception):
    """A tile program does not fit; what it needs is in its report."""

    error: GraphMemoryAllocationError | None = None

    def getSummaryReport(self) -> str:
        """Which memory is needed, tile by tile."""
        return str(self.error.report or self.error) if self.error is not None else str(self)

    def getProfilePath(self) -> str:
        """The file of the report, or "" if none was asked for."""
        return ""


@contextmanager
def popart_errors() -> Iterator[None]:
    """Inside, errors of layers above become PopART's, caused by them."""
    try:
        yield
    except popart_exception:
        raise
    except GraphMemoryAllocationError as error:
        raised = OutOfMemoryException(error.what, source=error.source, hint=error.hint)
        raised.error = error
        raise raised from error
    except PoplarError as error:
        raise popart_exception(error.what, source=error.source, hint=error.hint) from error

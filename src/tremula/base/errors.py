"""All exceptions: Poplar's tree; each message says what, expected and got, where, and the hint."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from tremula.base.source import Source


def suggest(name: str, known: Iterable[str]) -> str:
    """Advice for a misspelt name: the nearest known names, or all of them."""
    known = sorted(str(k) for k in known)
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return "did you mean " + " or ".join(repr(n) for n in near) + "?"
    shown = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
    return f"known names: {shown}" if known else "nothing of that kind exists yet"


# Where our name differs from Poplar's beyond spelling; StrictModeError is ours alone.
_POPLAR_NAMES = {
    "TensorIndexError": "index_error",
    "TypeMismatch": "type_error",
    "OverflowInField": "overflow_error",
    "RuntimeFailure": "runtime_error",
    "StrictModeError": "",
}


def poplar_name(kind: "type[PoplarError]") -> str:
    """What Poplar calls an error, such as graph_memory_allocation_error; empty if it has none."""
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
    return _POPLAR_NAMES.get(kind.__name__, snake)


class PoplarError(Exception):
    """Base of every error Tremula raises on purpose.

    `what` says what failed in the user's names, with expected and got; `source` is the user's line;
    `hint` says what to do. All three are shown.
    """

    def __init__(self, what: str, *, source: Source | None = None, hint: str = ""):
        self.what, self.source, self.hint = what, source, hint
        lines = [what]
        if source is not None:
            lines.append(f"  at {source}")
        if hint:
            lines.append(f"  try: {hint}")
        super().__init__("\n".join(lines))


class ControlProgramError(PoplarError):
    """A program is malformed: sizes or types of a Copy differ, a predicate is not a scalar, …"""


class FileLoadError(PoplarError):
    """A file cannot be read, is truncated, altered, or from a newer version."""


class GraphConnectionError(PoplarError):
    """A vertex field is unconnected, connected twice, or connected to a tensor of wrong rank."""


class GraphCycleError(PoplarError):
    """A data race: an element written by one vertex and read or written by another in one step."""


class GraphMemoryAllocationError(PoplarError):
    """A tile is out of memory. `report` still holds the full report, `executable` the program."""

    report: object = None
    executable: object = None


class GraphObjectCreationError(PoplarError):
    """A codelet class cannot be understood as a vertex."""


class GraphObjectLoadError(PoplarError):
    """A codelet file cannot be found or loaded."""


class GraphProgramCompilationError(PoplarError):
    """A codelet does not compile."""


class GraphRecursionError(PoplarError):
    """A function calls itself."""


class GraphReplicationError(PoplarError):
    """The replication factor does not fit the device, or replicas disagree about control flow."""


class TensorIndexError(PoplarError, IndexError):
    """A slice or index is out of range."""


class InvalidMachineModel(PoplarError):
    """A chip or machine description is impossible."""


class InvalidOption(PoplarError):
    """An option is unknown or has an impossible value."""


class InvalidTileMapping(PoplarError):
    """Something is not mapped to a tile, or to a tile that does not exist."""


class LinkError(PoplarError):
    """A codelet needs a symbol that does not exist."""


class MemoryElemConstraintsError(PoplarError):
    """A memory-element constraint of a codelet cannot be met."""


class MissingPerfEstimate(PoplarError):
    """A vertex has no cost."""


class MissingProfileData(PoplarError):
    """A report was requested before there was anything to report."""


class NoSizeSpecified(PoplarError):
    """A vector of edges was connected element by element without a size."""


class OverflowInField(PoplarError):
    """A value or length does not fit its field."""


class StreamConnectionError(PoplarError):
    """A stream is unknown, unconnected, or connected to data of the wrong size."""


class StreamMemoryAllocationError(PoplarError):
    """Host buffers for streams do not fit."""


class TensorCreationError(PoplarError):
    """A tensor cannot be made: shapes of a reshape, concat or broadcast do not fit."""


class TensorIoStateError(PoplarError):
    """A tensor's data was requested before it exists, for example before `engine.load()`."""


class TensorMetadataError(PoplarError):
    """An 8-bit float tensor has no metadata, or a tensor of another type has some."""


class TypeMismatch(PoplarError, TypeError):
    """An element type is unknown, unsupported or not the one expected."""


class UnknownField(PoplarError):
    """A vertex has no field of that name."""


class UnknownVertexType(PoplarError):
    """No codelet of that name was added to the graph."""


class RuntimeFailure(PoplarError, RuntimeError):
    """Something failed while a program ran."""


class ApplicationRuntimeError(RuntimeFailure):
    """The program stopped itself: Abort, AbortOnCondition, ErrorProgram."""


class StrictModeError(RuntimeFailure):
    """Strict mode caught what hardware would not: an Input written, an Output read, …"""


class SystemRuntimeError(RuntimeFailure):
    """The machine failed, not the program: a device is in use, a partition is broken, …"""


class RecoverableRuntimeError(SystemRuntimeError):
    """The machine failed, and `recovery_action` brings it back: IPU_RESET, LINK_RESET, …"""

    def __init__(
        self,
        what: str,
        *,
        source: Source | None = None,
        hint: str = "",
        recovery_action: str = "FULL_RESET",
    ):
        self.recovery_action = recovery_action
        super().__init__(what, source=source, hint=hint)


class UnrecoverableRuntimeError(SystemRuntimeError):
    """The machine failed, and no reset brings it back: its host agent is gone, say."""


class UnknownRuntimeError(SystemRuntimeError):
    """The machine failed for an unknown reason: the controller does not answer, say."""

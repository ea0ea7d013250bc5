"""Programs: immutable trees of control flow, whose arguments are checked when they are built."""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from tremula.base.errors import ControlProgramError
from tremula.base.print_format import PrintTensorFmt
from tremula.base.source import Source, user_source
from tremula.base.types import BOOL, FLOAT, HALF, INT, QUARTER, UNSIGNED_INT
from tremula.poplar.streams import (
    DataStream,
    HostFunction,
    RemoteBuffer,
)
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.compute_set import ComputeSet

AnyProgram = TypeVar("AnyProgram", bound="Program")


class _NamedLast(type):
    """Lets the last positional argument of a program be its name, as in Poplar."""

    if not TYPE_CHECKING:  # a checker sees each program's own arguments

        def __call__(cls, *args: object, **more: object) -> "Program":
            if args and isinstance(args[-1], str) and "name" not in more:
                *rest, last = args
                if (rest or cls is Sequence) and not cls._takes_text(len(rest), last):
                    return super().__call__(*rest, name=last, **more)
            return super().__call__(*args, **more)


@dataclass(frozen=True, eq=False)
class Program(metaclass=_NamedLast):
    """Base of all programs. The last positional argument of each may be its name."""

    source: Source = field(init=False, repr=False, default_factory=user_source)
    name: str = field(kw_only=True, default="")

    @classmethod
    def _takes_text(cls, position: int, text: str) -> bool:  # noqa: ARG003 (Switch looks at it)
        """Is a text at this position an argument, not the program's name?"""
        own = [f.name for f in fields(cls) if f.init and not f.kw_only]
        return position < len(own) and own[position] in ("message", "title")

    def fail(self, what: str, hint: str) -> ControlProgramError:
        """The error of a malformed program, with the line that made it."""
        return ControlProgramError(f"{type(self).__name__}: {what}", source=self.source, hint=hint)


def with_parts(program: AnyProgram, **parts: object) -> AnyProgram:
    """A copy of a program with other parts, which are as good as those that were checked."""
    new = object.__new__(type(program))
    vars(new).update(vars(program) | parts)
    return new


def check_programs(owner: Program, *bodies: object) -> None:
    for body in bodies:
        if not isinstance(body, Program):
            raise owner.fail(
                f"got {type(body).__name__}, expected a program.", "use Sequence() for nothing"
            )


def check_tensors(owner: Program, *tensors: object) -> None:
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise owner.fail(f"got {type(tensor).__name__}, expected a tensor.", "give a tensor")


def check_scalar(owner: Program, tensor: object, what: str) -> None:
    if not isinstance(tensor, Tensor) or tensor.n_elems != 1:
        got = list(tensor.shape) if isinstance(tensor, Tensor) else type(tensor).__name__
        raise owner.fail(f"the {what} must be a scalar tensor, got {got}.", "index one element")
    if tensor.type in (FLOAT, HALF, QUARTER):
        raise owner.fail(
            f"the {what} has type {tensor.type}.", "use BOOL or an integer type; non-zero is true"
        )


def check_writeable(owner: Program, tensor: Tensor) -> None:
    if tensor.contains_constant:
        raise owner.fail("cannot write to a constant.", "use add_variable instead of add_constant")
    if tensor.contains_aliases:
        raise owner.fail(
            "the destination contains the same element twice.",
            "write to the tensor before broadcast",
        )


# -- programs: each class checks its arguments when it is built, so errors have the user's line ----


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A program whose code all its `Call`s share."""

    program: "Program"
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class FunctionBuffer:
    """Remote memory that holds a function's code; copying it in only costs time."""

    function: Function


CopySource = Tensor | DataStream | RemoteBuffer | FunctionBuffer
CopyDestination = Tensor | DataStream | RemoteBuffer | Function


class SyncType(Enum):
    """INTERNAL: the tiles of one IPU. EXTERNAL: all IPUs of a replica. GLOBAL: all replicas.

    HOST: all IPUs, and they wait for the host to answer; an addition of Tremula.
    """

    INTERNAL = "internal"
    EXTERNAL = "external"
    GLOBAL = "global"
    HOST = "host"


class Waits(Enum):
    """Who waits for a copy between tiles and the host or streaming memory.

    ALL: every IPU of the replica. OWN: those that take part, each for itself. NONE: none; the
    copy runs beside the steps that follow, up to the next one that uses its tiles.
    """

    ALL = "all"
    OWN = "own"
    NONE = "none"


@dataclass(frozen=True, eq=False)
class Sequence(Program):
    """Steps in order."""

    steps: list[Program] = field(default_factory=list)

    def __init__(self, steps: Iterable[Program] | Program = (), *more: Program, name: str = ""):
        is_listed = isinstance(steps, Iterable)
        children = [*steps, *more] if is_listed else [steps, *more]
        object.__setattr__(self, "source", user_source())
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "steps", [])
        for step in children:
            self.add(step)

    def add(self, *programs: Program) -> "Sequence":
        """Append programs; returns itself."""
        for program in programs:
            if not isinstance(program, Program):
                raise self.fail(
                    f"got {type(program).__name__}, expected a program.",
                    "wrap a compute set in Execute(cs)",
                )
            self.steps.append(program)
        return self

    @property
    def is_empty(self) -> bool:
        """Does it hold no program?"""
        return not self.steps


@dataclass(frozen=True, eq=False)
class Execute(Program):
    """Run every vertex of a compute set once; `result` gets the AND of what they return."""

    compute_set: ComputeSet = None  # pyright: ignore[reportAssignmentType]
    result: Tensor | None = None

    def __post_init__(self) -> None:
        if not hasattr(self.compute_set, "frozen_tables"):
            raise self.fail(
                f"got {type(self.compute_set).__name__}, expected a compute set.",
                "make one with graph.add_compute_set(name)",
            )
        if self.result is not None:
            check_scalar(self, self.result, "result")
            check_writeable(self, self.result)


@dataclass(frozen=True, eq=False)
class Copy(Program):
    """Copy elements in flattened order, between tensors, streams and remote buffers."""

    source_of_data: CopySource = None  # pyright: ignore[reportAssignmentType]
    destination: CopyDestination = None  # pyright: ignore[reportAssignmentType]
    # Poplar's third argument may be a bool (dontOutline, optimiseMemory), which changes nothing.
    offset: Tensor | None = None
    waits: Waits = field(kw_only=True, default=Waits.ALL)
    # The copy that this one repeats with other variables, laid out alike.
    repeats: "Copy | None" = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        src, dst = self.source_of_data, self.destination
        if isinstance(self.offset, bool):
            object.__setattr__(self, "offset", None)
        if isinstance(src, FunctionBuffer) and isinstance(dst, Function):
            return
        if not isinstance(src, Tensor) and not isinstance(dst, Tensor):
            raise self.fail("one side must be a tensor.", "copy stream → tensor → stream")
        if isinstance(dst, Tensor):
            check_writeable(self, dst)
        for tensor, other in ((src, dst), (dst, src)):
            if isinstance(tensor, Tensor):
                self._check_pair(tensor, other)
        for stream, wants_in in ((src, True), (dst, False)):
            if isinstance(stream, DataStream) and stream.is_host_to_device != wants_in:
                raise self.fail(
                    f"stream {stream.handle!r} runs the other way.",
                    "add_host_to_device_fifo is a source, add_device_to_host_fifo a destination",
                )

    def _check_pair(self, tensor: Tensor, other: object) -> None:
        expected = None
        if isinstance(other, Tensor):
            expected = (other.type, other.n_elems)
        elif isinstance(other, DataStream):
            expected = (other.type, other.n_elements)
        elif isinstance(other, RemoteBuffer):
            expected = (other.type, other.n_elements * self._n_rows(other))
        if expected is None:
            raise self.fail(
                f"cannot copy to or from {type(other).__name__}.", "use a tensor or stream"
            )
        if tensor.type != expected[0]:
            raise self.fail(
                f"element types differ: {tensor.type} and {expected[0]}.", "cast one side first"
            )
        if tensor.n_elems != expected[1]:
            raise self.fail(
                f"sizes differ: {tensor.n_elems} and {expected[1]} elements.",
                "slice or broadcast one side",
            )

    def _n_rows(self, buffer: RemoteBuffer) -> int:
        if not isinstance(self.offset, Tensor):
            if buffer.repeats != 1:
                raise self.fail(
                    f"remote buffer {buffer.handle!r} has {buffer.repeats} rows and needs an "
                    "offset.",
                    "give offset=, a tensor with the row index",
                )
            return 1
        if self.offset.type not in (INT, UNSIGNED_INT) or self.offset.rank > 1:
            raise self.fail(
                f"the offset is {self.offset.type} of rank {self.offset.rank}.",
                "use an INT or UNSIGNED_INT scalar or vector of row indices",
            )
        return self.offset.n_elems


@dataclass(frozen=True, eq=False)
class Repeat(Program):
    """Run the body a fixed number of times."""

    count: int = 0
    body: Program = None  # pyright: ignore[reportAssignmentType]

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or self.count < 0:
            raise self.fail(f"the count is {self.count!r}.", "use a constant integer of 0 or more")
        check_programs(self, self.body)


@dataclass(frozen=True, eq=False)
class RepeatWhileTrue(Program):
    """Run `condition`; while `predicate` is then true, run the body and start over."""

    condition: Program = None  # pyright: ignore[reportAssignmentType]
    predicate: Tensor = None  # pyright: ignore[reportAssignmentType]
    body: Program = None  # pyright: ignore[reportAssignmentType]
    stops_on = False

    def __post_init__(self) -> None:
        check_programs(self, self.condition, self.body)
        check_scalar(self, self.predicate, "predicate")


@dataclass(frozen=True, eq=False)
class RepeatWhileFalse(RepeatWhileTrue):
    """Run `condition`; while `predicate` is then false, run the body and start over."""

    stops_on = True


@dataclass(frozen=True, eq=False)
class Loop(Program):
    """Run the body until `engine.stop()`."""

    body: Program = None  # pyright: ignore[reportAssignmentType]

    def __post_init__(self) -> None:
        check_programs(self, self.body)


@dataclass(frozen=True, eq=False)
class If(Program):
    """Run one of two programs; non-zero is true."""

    predicate: Tensor = None  # pyright: ignore[reportAssignmentType]
    true_body: Program = None  # pyright: ignore[reportAssignmentType]
    false_body: Program = field(default_factory=Sequence)

    def __post_init__(self) -> None:
        check_scalar(self, self.predicate, "predicate")
        check_programs(self, self.true_body, self.false_body)


_NO_MATCH = ("default", "error", "undefined")


@dataclass(frozen=True, eq=False)
class Switch(Program):
    """Run the case whose value the control tensor has, else the default.

    `on_no_match`: "default" runs `default`, "error" raises, "undefined" promises it never happens.
    """

    control: Tensor = None  # pyright: ignore[reportAssignmentType]
    cases: Mapping[int, Program] | Iterable[tuple[int, Program]] = ()
    default: Program = field(default_factory=Sequence)
    on_no_match: str = "default"

    def __post_init__(self) -> None:
        check_scalar(self, self.control, "control")
        if self.on_no_match not in _NO_MATCH:
            raise self.fail(
                f"on_no_match is {self.on_no_match!r}.", "use 'default', 'error' or 'undefined'"
            )
        pairs = self.cases.items() if isinstance(self.cases, Mapping) else self.cases
        object.__setattr__(self, "cases", {})
        for value, body in cast("Iterable[tuple[int, Program]]", pairs):
            self.add(value, body)
        check_programs(self, self.default)

    @classmethod
    def _takes_text(cls, position: int, text: str) -> bool:
        return position == 3 and text in _NO_MATCH

    def add(self, value: int, body: Program) -> "Switch":
        """Add a case; returns itself."""
        check_programs(self, body)
        cases: dict[int, Program] = self.cases  # pyright: ignore[reportAssignmentType]
        limits = np.iinfo(self.control.type.dtype) if self.control.type != BOOL else None
        if not (limits.min <= value <= limits.max if limits else 0 <= value <= 1):
            raise self.fail(
                f"case {value} does not fit the control, which is {self.control.type}.",
                "use values the control can have",
            )
        if value in cases:
            raise self.fail(f"case {value} is there twice.", "give each value once")
        cases[value] = body
        return self

    @staticmethod
    def with_bounds_checking(control: Tensor, cases: Iterable[tuple[int, Program]]) -> "Switch":
        """A switch that stops the run if no case matches."""
        return Switch(control, cases, on_no_match="error")

    @staticmethod
    def with_unreachable_default(control: Tensor) -> "Switch":
        """A switch of which one case always matches."""
        return Switch(control, on_no_match="undefined")


@dataclass(frozen=True, eq=False)
class Call(Program):
    """Run a function's program, or host code with tensors."""

    function: Function | HostFunction = None  # pyright: ignore[reportAssignmentType]
    inputs: SequenceOf[Tensor] = ()
    outputs: SequenceOf[Tensor] = ()

    def __post_init__(self) -> None:
        if isinstance(self.function, Function):
            return
        if not isinstance(self.function, HostFunction):
            raise self.fail(
                f"got {type(self.function).__name__}, expected a function.",
                "make one with graph.add_function(program)",
            )
        for what, tensors, wanted in (
            ("inputs", self.inputs, self.function.inputs),
            ("outputs", self.outputs, self.function.outputs),
        ):
            got = [(t.type, t.n_elems) for t in tensors]
            if got != list(wanted):
                raise self.fail(
                    f"{what} of host function {self.function.handle!r} are {got}, expected "
                    f"{list(wanted)}.",
                    "match the types and sizes given to add_host_function",
                )
        for tensor in self.outputs:
            check_writeable(self, tensor)


@dataclass(frozen=True, eq=False)
class Sync(Program):
    """Synchronise; only affects timing."""

    sync_type: SyncType = SyncType.INTERNAL


@dataclass(frozen=True, eq=False)
class Block(Program):
    """Runs its body, as a region that profiles show by name."""

    body: Program = None  # pyright: ignore[reportAssignmentType]

    def __post_init__(self) -> None:
        check_programs(self, self.body)


@dataclass(frozen=True, eq=False)
class PrintTensor(Program):
    """Print a tensor on the engine's print stream (stderr)."""

    title: "str | Tensor" = ""
    tensor: Tensor = None  # pyright: ignore[reportAssignmentType]
    fmt: PrintTensorFmt | None = None

    def __post_init__(self) -> None:
        if isinstance(self.title, Tensor):  # PrintTensor(tensor[, fmt])
            object.__setattr__(self, "fmt", self.tensor if self.fmt is None else self.fmt)
            object.__setattr__(self, "tensor", self.title)
            object.__setattr__(self, "title", "")
        check_tensors(self, self.tensor)


@dataclass(frozen=True, eq=False)
class WriteUndef(Program):
    """Declare that a tensor's content no longer matters; affects liveness only."""

    tensor: Tensor = None  # pyright: ignore[reportAssignmentType]

    def __post_init__(self) -> None:
        check_tensors(self, self.tensor)


@dataclass(frozen=True, eq=False)
class AssumeEqualAcrossReplicas(Program):
    """Promise that a tensor has the same value in every replica, so it may steer control flow."""

    tensor: Tensor = None  # pyright: ignore[reportAssignmentType]

    def __post_init__(self) -> None:
        check_tensors(self, self.tensor)


@dataclass(frozen=True, eq=False)
class CrossReplicaCopy(Program):
    """Each replica sends its tensor to the mapped replica's destination."""

    source_of_data: Tensor = None  # pyright: ignore[reportAssignmentType]
    destination: Tensor = None  # pyright: ignore[reportAssignmentType]
    replica_map: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        src, dst = self.source_of_data, self.destination
        check_tensors(self, src, dst)
        if (src.type, src.n_elems) != (dst.type, dst.n_elems):
            raise self.fail(
                f"{src.n_elems} elements of {src.type} do not fit {dst.n_elems} of {dst.type}.",
                "use tensors of one type and size",
            )
        check_writeable(self, dst)
        if sorted(self.replica_map) != sorted(self.replica_map.values()):
            raise self.fail(
                f"{dict(self.replica_map)} is not a permutation of replicas.",
                "name each replica once as source and once as destination",
            )


@dataclass(frozen=True, eq=False)
class Abort(Program):
    """Stop the run and raise on the host."""

    message: str = ""


@dataclass(frozen=True, eq=False)
class AbortOnCondition(Program):
    """Stop the run and raise if the predicate is true."""

    predicate: Tensor = None  # pyright: ignore[reportAssignmentType]
    message: str = ""

    def __post_init__(self) -> None:
        check_scalar(self, self.predicate, "predicate")


@dataclass(frozen=True, eq=False)
class ErrorProgram(Program):
    """Raise with a message and a tensor's values."""

    message: str = ""
    tensor: Tensor = None  # pyright: ignore[reportAssignmentType]

    def __post_init__(self) -> None:
        check_tensors(self, self.tensor)


@dataclass(frozen=True, eq=False)
class CycleStamp(Program):
    """Write the modelled cycle counter (low, high) into a 2-element tensor; made by cycle_stamp."""

    tensor: Tensor = None  # pyright: ignore[reportAssignmentType]
    tile: int = 0
    sync_type: SyncType = SyncType.INTERNAL
    since: Tensor | None = None  # subtract an earlier stamp


@dataclass(frozen=True, eq=False)
class SetMachineState(Program):
    """Change how the machine computes: rounding, exceptions, seeds; see control.py."""

    values: Mapping[str, object] = field(default_factory=dict)
    seeds: Tensor | None = None


@dataclass(frozen=True, eq=False)
class GetHwSeeds(Program):
    """Read the seeds of all workers into a tensor."""

    tensor: Tensor = None  # pyright: ignore[reportAssignmentType]

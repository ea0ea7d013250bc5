"""Functions with arguments: a program built once, its arguments copied in and out of each call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from tremula.base.source import user_source
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Call, Copy
from tremula.poplar.programs import Sequence as Steps
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.poputil.layout import clone_in_order
from tremula.poplibs.registry import PoplibsError


class ArgKind(Enum):
    """INPUT is read, OUTPUT written, INOUT both; CREATED is made by the function."""

    INPUT = "input"
    OUTPUT = "output"
    INOUT = "inout"
    CREATED = "created"


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument: its kind, and a tensor like it (none for CREATED)."""

    kind: ArgKind
    like: Tensor | None = None
    name: str = ""


def input_arg(like: Tensor, name: str = "") -> Arg:
    """An argument that is copied in."""
    return Arg(ArgKind.INPUT, like, name)


def output_arg(like: Tensor, name: str = "") -> Arg:
    """An argument that is copied out."""
    return Arg(ArgKind.OUTPUT, like, name)


def inout_arg(like: Tensor, name: str = "") -> Arg:
    """An argument that is copied in and, changed, out."""
    return Arg(ArgKind.INOUT, like, name)


def created_arg(name: str = "") -> Arg:
    """A result that the function makes."""
    return Arg(ArgKind.CREATED, None, name)


class VoidFunction:
    """A function over fixed tensors: `build(tensors, sequence)` makes its program once.

    `tensors` has one entry per argument; `build` sets those of CREATED arguments.
    """

    def __init__(
        self,
        graph: Graph,
        signature: Sequence[Arg],
        build: Callable[[list[Tensor | None], Steps], None],
        name: str = "",
    ):
        self.graph, self.signature, self.name = graph, tuple(signature), name or "function"
        self.tensors: list[Tensor | None] = [
            None if a.like is None else clone_in_order(graph, a.like, a.name or "argument")
            for a in self.signature
        ]
        program = Steps()
        build(self.tensors, program)
        missing = [i for i, t in enumerate(self.tensors) if t is None]
        if missing:
            raise PoplibsError(
                f"{self.name}: created argument {missing[0]} was not set by its program.",
                source=user_source(),
                hint="let build set tensors[i] for every created argument",
            )
        self._function = graph.add_function(program, self.name)

    def __call__(self, arguments: Sequence[Tensor | None], sequence: Steps) -> list[Tensor]:
        """Copy arguments in, call, copy results out; the arguments, created ones new."""
        if len(arguments) != len(self.signature):
            raise PoplibsError(
                f"{self.name} takes {len(self.signature)} arguments, got {len(arguments)}.",
                source=user_source(),
                hint="give None for created arguments",
            )
        tensors = [
            self._like(i) if a.kind is ArgKind.CREATED and t is None else t
            for i, (a, t) in enumerate(zip(self.signature, arguments, strict=True))
        ]
        self._copy(tensors, sequence, is_before=True)
        sequence.add(Call(self._function))
        self._copy(tensors, sequence, is_before=False)
        return [t for t in tensors if t is not None]

    def _like(self, index: int) -> Tensor:
        fixed = self.tensors[index]
        assert fixed is not None, "checked when the function was made"
        return clone_in_order(self.graph, fixed, self.signature[index].name or "result")

    def _copy(self, tensors: list[Tensor | None], sequence: Steps, *, is_before: bool) -> None:
        skipped = (ArgKind.OUTPUT, ArgKind.CREATED) if is_before else (ArgKind.INPUT,)
        for number, (arg, fixed, own) in enumerate(
            zip(self.signature, self.tensors, tensors, strict=True)
        ):
            if arg.kind in skipped:
                continue
            if own is None or fixed is None or own.shape != fixed.shape:
                raise PoplibsError(
                    f"{self.name}: argument {number} has shape "
                    f"{None if own is None else list(own.shape)}, expected "
                    f"{None if fixed is None else list(fixed.shape)}.",
                    source=user_source(),
                    hint="call it with tensors like those it was made with",
                )
            sequence.add(Copy(own, fixed) if is_before else Copy(fixed, own))


class TensorFunction(VoidFunction):
    """A function that returns a tensor: its last argument is CREATED, and `build` returns it."""

    def __init__(
        self,
        graph: Graph,
        signature: Sequence[Arg],
        build: Callable[[list[Tensor | None], Steps], Tensor],
        name: str = "",
    ):
        def build_and_keep(tensors: list[Tensor | None], sequence: Steps) -> None:
            tensors[-1] = build(tensors[:-1], sequence)

        super().__init__(graph, [*signature, created_arg("result")], build_and_keep, name)

    def result(self, arguments: Sequence[Tensor | None], sequence: Steps) -> Tensor:
        """Call the function; its result, as a new tensor."""
        return self([*arguments, None], sequence)[-1]

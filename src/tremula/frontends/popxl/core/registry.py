"""Operations by name, entered by the modules of `ops`: tensors find their operators here."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin

import torch

from tremula.base.names.argument_types import explains_arguments
from tremula.frontends.popxl.dtypes import dtype
from tremula.frontends.shared.table import Table

Hidden = Annotated[torch.Tensor, "hidden"]  # a result that the public function does not return
Attributes = Mapping[str, Any]  # of an operation, by name: each has its own type
AttributeDict = dict[str, Any]
Types = Sequence[dtype]
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class OperationRow:
    """An operation: its name and class in PopXL, and the function over PyTorch that computes it."""

    name: str  # of the public function; empty for operations that only other code makes
    kind: str  # PopART's type, such as "MatMul"
    compute: Callable[..., Any] | None  # operands as tensors of PyTorch → result or results
    class_name: str = ""  # of the view in popart._internal.ir, without "Op"
    modifies: tuple[int | str, ...] = ()  # inputs that are written, by number or operand's name
    is_view: bool = False  # the result is the memory of the first operand
    types: Callable[[Types, Attributes], dtype | Types] | None = None  # of results
    gradient: Callable[..., Any] | None = None  # (op, gradients of results, wanted) → gradients
    is_pure: bool = True  # depends on its operands only, and changes nothing else
    is_collective: bool = False  # computes with the values of all replicas
    same: tuple[str, ...] = ()  # operands that must have one type

    @property
    def view_class(self) -> str:
        return (self.class_name or self.kind) + "Op"

    @property
    def gives_new(self) -> bool:
        """The result of an operation that writes an input by name is not that input's memory."""
        return any(isinstance(m, str) for m in self.modifies)

    @cached_property
    def signature(self) -> inspect.Signature:
        assert self.compute is not None, f"{self.kind} is not computed by a function"
        return inspect.signature(self.compute)

    @cached_property
    def starred(self) -> str:
        """The operand that the function takes as *arguments, or the empty string."""
        parameters = self.signature.parameters.values()
        return next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "")

    @cached_property
    def returns_list(self) -> bool:
        return get_origin(self.signature.return_annotation) is list

    @cached_property
    def n_hidden(self) -> int:
        """How many of the results, the last ones, the public function does not return."""
        return sum(part == Hidden for part in get_args(self.signature.return_annotation))


ROWS: dict[str, OperationRow] = {}  # by name of the public function
FUNCTIONS: Table[str, Callable[..., Any]] = Table("tremula.frontends.popxl.ops")
VIEWS: dict[str, Callable[..., Any]] = {}  # how popart._internal.ir shows a tensor, graph or Ir


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Enter a function of `popxl.ops` that is made of other operations."""
    explained = explains_arguments(function)
    FUNCTIONS.enter(function.__name__, explained)
    return explained


def apply(name: str, *args: object, **kwargs: object) -> Any:
    """Call a public operation by name."""
    return FUNCTIONS.rows()[name](*args, **kwargs)

"""Rows of operations by name, filled by the modules of `ops`: tensors find their operators here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Operation:
    """An operation: its name and class in PopXL, and the function over PyTorch that computes it."""

    name: str  # of the public function; empty for operations that only other code makes
    kind: str  # PopART's type, such as "MatMul"
    compute: Callable[..., Any] | None  # operands as tensors of PyTorch → result or results
    class_name: str = ""  # of the view in popart._internal.ir, without "Op"
    modifies: tuple[int | str, ...] = ()  # inputs that are written, by number or operand's name
    gives_new: bool = False  # the result of one that writes is not the memory it wrote
    is_view: bool = False  # the result is the memory of the first operand
    types: Callable[..., Any] | None = None  # (operand types, attributes) → types of results
    gradient: Callable[..., Any] | None = None  # (op, gradients of results, wanted) → gradients
    is_pure: bool = True  # depends on its operands only, and changes nothing else
    is_collective: bool = False  # computes with the values of all replicas
    n_outputs: int = 1
    group: str = ""
    starred: str = ""  # the operand that the function takes as *arguments
    returns_list: bool = False
    hidden: int = 0  # results that the public function does not give
    same: tuple[str, ...] = ()  # operands that must have one type

    @property
    def view_class(self) -> str:
        return (self.class_name or self.kind) + "Op"


ROWS: dict[str, Operation] = {}  # by name of the public function
FUNCTIONS: dict[str, Callable[..., Any]] = {}  # public functions by name
VIEWS: dict[str, Callable[..., Any]] = {}  # how popart._internal.ir shows a tensor, graph or Ir


def apply(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a public operation by name."""
    return FUNCTIONS[name](*args, **kwargs)

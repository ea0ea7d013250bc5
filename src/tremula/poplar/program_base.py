"""What all programs are, and the checks of their arguments."""

from dataclasses import dataclass, field

from tremula.base.errors import ControlProgramError
from tremula.base.source import Source, user_source
from tremula.base.types import FLOAT, HALF, QUARTER
from tremula.poplar.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Program:
    """Base of all programs."""

    source: Source = field(init=False, repr=False, default_factory=user_source)
    name: str = field(kw_only=True, default="")

    def fail(self, what: str, mend: str) -> ControlProgramError:
        return ControlProgramError(f"{type(self).__name__}: {what}", source=self.source, mend=mend)


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

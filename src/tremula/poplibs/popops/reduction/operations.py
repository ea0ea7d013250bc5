"""The table of reduction operations: one row each, with all there is to say about it.

The text of a step, what joins partial results, types, identity, cost, NumPy's reference.
`register_reduction` adds one from anywhere. Costs are PopLibs' estimates.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tremula.base.types import BOOL, FLOAT, HALF, INT, UNSIGNED_INT, Type, float32

NUMBERS = (FLOAT, HALF, INT, UNSIGNED_INT)


@dataclass(frozen=True, slots=True)
class ReduceOp:
    """One kind of reduction: `step` is its codelet source, accumulator {0} and next value {1}."""

    name: str
    step: str
    types: tuple[Type, ...]
    identity: float
    numpy: Callable[..., np.ndarray]  # two operands, as the step takes them
    join: str = ""  # the operation that joins partial results; by default itself
    slots: int = 1  # per vector of floats, the load included
    slots_half: int = 1
    flops: int = 1  # of a step, where its values are floats
    takes_scale: bool = False  # can scale its result and add to what is there
    is_exact: bool = False  # rounds nothing: halves are accumulated as halves
    functions: tuple[Callable, ...] = ()  # that the step calls
    most_sampled: int = 1000  # most partials that tests reduce at once: halves overflow

    @property
    def joined_by(self) -> str:
        """The operation that joins partial results."""
        return self.join or self.name

    @property
    def mixes_floats(self) -> bool:
        """Whether halves may be reduced to a float, and floats to a half."""
        return self.identity in (0, 1)

    def identity_of(self, type: Type) -> float:
        """The result of reducing nothing."""
        if math.isfinite(self.identity) or type.is_floating:
            return self.identity
        limits = np.iinfo(type.dtype)
        return int(limits.max if self.identity > 0 else limits.min)


def log_add(a: float, b: float) -> float:
    """log(exp(a) + exp(b)); both may be infinite."""
    largest = max(a, b)
    if a == b:
        return largest + float32(0.6931472)  # pyright: ignore[reportOperatorIssue]
    return largest + math.log1p(math.exp(min(a, b) - largest))


# Every reduction by name. Slots of LOG_ADD are published: 23 for floats and 13 for halves.
REDUCE_OPS: dict[str, ReduceOp] = {
    op.name: op
    for op in (
        ReduceOp("ADD", "{0} + {1}", NUMBERS, 0, np.add, takes_scale=True),
        ReduceOp("SQUARE_ADD", "{0} + {1} * {1}", NUMBERS, 0, lambda a, b: a + b * b, join="ADD",
                 flops=2, takes_scale=True),
        ReduceOp("LOG_ADD", "log_add({0}, {1})", (FLOAT, HALF), -math.inf, np.logaddexp, slots=23,
                 slots_half=13, flops=5, takes_scale=True, functions=(log_add,)),
        # A product of 600 halves overflows.
        ReduceOp("MUL", "{0} * {1}", NUMBERS, 1, np.multiply, most_sampled=400),
        ReduceOp("MIN", "min({0}, {1})", NUMBERS, math.inf, np.minimum, is_exact=True),
        ReduceOp("MAX", "max({0}, {1})", NUMBERS, -math.inf, np.maximum, is_exact=True),
        ReduceOp("LOGICAL_AND", "{0} and {1}", (BOOL,), 1, np.logical_and),
        ReduceOp("LOGICAL_OR", "{0} or {1}", (BOOL,), 0, np.logical_or),
    )
}  # fmt: skip


# As PopLibs numbers them (popops/OperationDef.hpp).
_NUMBERED = ("ADD", "MUL", "MIN", "MAX", "LOGICAL_AND", "LOGICAL_OR", "SQUARE_ADD", "LOG_ADD")


def number_of(operation: str) -> int:
    """PopLibs' number of an operation; of one that was registered, one that its name gives."""
    if operation in _NUMBERED:
        return _NUMBERED.index(operation)
    return zlib.crc32(operation.encode())


def names_of(is_wanted: Callable[[ReduceOp], object] = bool, last: str = "and") -> str:
    """The operations as text: ADD, MUL and MIN."""
    names = [op.name for op in REDUCE_OPS.values() if is_wanted(op)]
    return f" {last} ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else names[0]

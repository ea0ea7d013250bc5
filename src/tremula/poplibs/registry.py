"""The registry of operations: tests, the support matrix and reference pages come from it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module

import numpy as np

from tremula.base.errors import PoplarError, suggest
from tremula.base.source import user_source
from tremula.base.types import BOOL, UNSIGNED_INT, Type

# Importing these registers their operations.
MODULES = (
    "tremula.poplibs.popops",
    "tremula.poplibs.poplin",
    "tremula.poplibs.popnn",
    "tremula.poplibs.poprand",
    "tremula.poplibs.popsparse",
    "tremula.poplibs.gcl",
)


class PoplibsError(PoplarError):
    """An operation was given operands it cannot work on."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One call of an operation: arrays for its tensors, and its other arguments."""

    inputs: tuple[np.ndarray, ...]
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ErrorCase:
    """A call that must raise; `expected` is part of the message."""

    sample: Sample
    expected: str
    error: type[PoplarError] = PoplibsError


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """An operation and everything needed to test and document it."""

    name: str  # "popops.add"
    function: Callable  # (graph, *tensors, sequence, **options) -> Tensor or tuple of them
    about: str
    types: tuple[Type, ...]
    samples: Callable[[Type, np.random.Generator], Iterator[Sample]]
    reference: Callable | None  # (*arrays, **options) -> array or tuple of them, in NumPy
    codelets: tuple[Callable, ...]  # the families it uses: each makes classes with a cost
    errors: tuple[ErrorCase, ...] = ()
    tolerance: Mapping[str, float] = field(default_factory=dict)  # type name -> relative error
    is_in_place: bool = False  # the result is the first operand's new value
    # Random results have no reference: (result, *arrays, **options) -> what is wrong, or "".
    check: Callable[..., str] | None = None


def sample_values(type: Type, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Random values whose sums and products neither overflow nor cancel."""
    if type is BOOL:
        return rng.random(shape) < 0.5
    if type.is_floating:
        return (0.5 + rng.random(shape)).astype(type.dtype)
    return rng.integers(1, 4, shape).astype(type.dtype)


def distinct_values(type: Type, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Distinct numbers in random order, so that sorting them has one right answer."""
    n = int(np.prod(shape))
    values = rng.permutation(n).reshape(shape)
    return (
        values.astype(type.dtype) if type is UNSIGNED_INT else (values - n // 2).astype(type.dtype)
    )


_OPS: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Add an operation; an incomplete one is an error."""
    missing = [
        what
        for what, value in (
            ("types", op.types),
            ("codelets", op.codelets),
            ("about", op.about),
            ("reference", op.reference or op.check),
        )
        if not value
    ]
    uncosted = [c.__name__ for c in op.codelets if not getattr(c, "has_cost", False)]
    if missing or uncosted or op.name in _OPS:
        reason = f"lacks {missing}" if missing else f"uses codelets without a cost: {uncosted}"
        reason = "is registered twice" if op.name in _OPS else reason
        raise PoplibsError(f"operation {op.name!r} {reason}.", hint="complete its entry")
    _OPS[op.name] = op
    return op


def take_back(name: str, added: set[str], kind: str) -> None:
    """Remove a name from those that users registered; an error if it is not among them."""
    if name not in added:
        raise PoplibsError(
            f"no {kind} {name!r} was registered.",
            source=user_source(),
            hint=suggest(name, added),
        )
    added.remove(name)


def unregister(name: str) -> None:
    """Remove an operation."""
    del _OPS[name]


def all_ops() -> dict[str, Op]:
    """Every registered operation, by name."""
    for module in MODULES:
        import_module(module)
    return dict(sorted(_OPS.items()))

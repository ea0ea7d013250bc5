"""Small functions that PopXL's modules of operations have beside the operations."""

from collections.abc import Iterable, Sequence
from math import prod

from tremula.frontends.popart.enums import CollectiveOperator
from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.registry import apply
from tremula.frontends.popxl.core.tensor import Tensor
from tremula.frontends.popxl.dtypes import dtype
from tremula.frontends.popxl.ops.random import modified_seed

_COLLECTIVE_OPERATORS = {
    "add": CollectiveOperator.Add, "mean": CollectiveOperator.Mean, "mul": CollectiveOperator.Mul,
    "min": CollectiveOperator.Min, "max": CollectiveOperator.Max,
    "and": CollectiveOperator.LogicalAnd, "or": CollectiveOperator.LogicalOr,
    "square_add": CollectiveOperator.SquareAdd, "local": CollectiveOperator.Local,
}  # fmt: skip


def cast_if_needed(t: Tensor, data_type: dtype) -> Tensor:
    """A tensor in a type: itself, if it has it."""
    return t if t.dtype == data_type else apply("cast", t, data_type)


def handle_negative_axis(t: Tensor, axis: int) -> int:
    """The number of an axis from 0 on."""
    return t.rank + axis if axis < 0 else axis


def convert_optional_float(v: float | None) -> float | None:
    return None if v is None else float(v)


def convert_optional_int(v: int | None) -> int | None:
    return None if v is None else int(v)


def convert_optional_dtype(dt: dtype | None) -> dtype | None:
    return dt


def convert_optional_int64_list(l: Iterable[int] | None) -> list[int] | None:
    return None if l is None else [int(n) for n in l]


def to_collective_op(op: str) -> CollectiveOperator:
    """PopART's operator of a collective, by PopXL's name."""
    if op not in _COLLECTIVE_OPERATORS:
        raise ValueError(
            f"Not a valid op: {op!r}. Must choose from {', '.join(_COLLECTIVE_OPERATORS)}"
        )
    return _COLLECTIVE_OPERATORS[op]


def multiply_tuple(tup: Sequence[int]) -> int:
    """The product of a shape's sizes."""
    return prod(tup)


def create_random_seed(seed: Tensor, modifier: int | Tensor) -> Tensor:
    """Another seed, which a seed and a number make."""
    return modified_seed(seed, modifier)


def reshape_handle_negative_axis(t: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape whose size -1, if there is one, is computed from the number of elements."""
    known = prod(n for n in shape if n != -1)
    return tuple(t.nelms // known if n == -1 else int(n) for n in shape)


def process_args(
    start: Sequence[int | None] | int | None = None,
    stop: Sequence[int | None] | int | None = None,
    step: Sequence[int | None] | int | None = None,
    axis: Sequence[int] | int | None = None,
) -> tuple[list, list, list, list]:
    """Bounds of a slice as lists of one length: starts, stops, steps and axes."""
    lists = [None if v is None else [v] if isinstance(v, int) else list(v)
             for v in (start, stop, step, axis)]  # fmt: skip
    n = max((len(v) for v in lists if v is not None), default=0)
    starts, stops, steps, axes = ([None] * n if v is None else v for v in lists)
    if len({len(v) for v in (starts, stops, steps, axes)}) > 1:
        raise ValueError(
            f"start {start}, stop {stop}, step {step} and axis {axis} must be of one length"
        )
    steps = [1 if s is None else s for s in steps]
    return starts, stops, steps, list(range(n)) if axis is None else axes


def weight_decay_is_required(weight_decay: float | Tensor | None) -> bool:
    """Whether an update with this decay reads the weight."""
    return isinstance(weight_decay, Tensor) or (weight_decay is not None and weight_decay != 0)


def code_copy(graph: Graph, source: str, destination: str) -> None:
    """Bring the code of a graph to where it is executed."""
    if source not in {"remote", "executable"}:
        raise ValueError(f"Code is copied from 'remote' or 'executable' memory, got {source!r}")
    apply("remote_code_load", graph, destination)

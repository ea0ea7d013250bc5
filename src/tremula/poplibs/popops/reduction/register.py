"""Registering reductions: their entries in the registry, with samples, references and errors."""

from collections.abc import Iterator
from functools import reduce as fold

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import BOOL, FLOAT, HALF, INT, UNSIGNED_INT, Type, as_type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops.reduction.codelets import reduce_vertex
from tremula.poplibs.popops.reduction.operations import REDUCE_OPS, ReduceOp, names_of
from tremula.poplibs.popops.reduction.reduce import Reduction, reduce, reduce_many
from tremula.poplibs.registry import (
    ErrorCase,
    Op,
    PoplibsError,
    Sample,
    register,
    sample_values,
    take_back,
    unregister,
)

# Shapes and reduced dimensions: rows, columns, both ends, nothing, everything, size 1, empty.
_SHAPES = (
    ((5, 7), (0,)), ((5, 7), (1,)), ((400,), (0,)), ((6, 50, 3), (1,)), ((4, 5, 6, 7), (0, 2)),
    ((4, 5, 6, 7), (1, 3)), ((2, 3), ()), ((3, 1, 4), (1,)), ((600, 5), (0,)), ((1,), (0,)),
    ((3, 0), (1,)), ((40, 64), (0,)),
)  # fmt: skip


def _samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    operations = [o.name for o in REDUCE_OPS.values() if type in o.types]
    for number, (shape, dims) in enumerate(_SHAPES):
        operation = operations[number % len(operations)]
        n_partials = int(np.prod([shape[d] for d in dims], dtype=np.int64))
        if n_partials > REDUCE_OPS[operation].most_sampled:
            operation = operations[0]
        options = {"dims": dims, "operation": operation}
        yield Sample((sample_values(type, shape, rng),), options)
    for operation in operations:
        options = {"dims": (0,), "operation": operation}
        yield Sample((sample_values(type, (13, 6), rng),), options)
    if type.is_floating:
        for number in (-0.5, 2):
            options = {"dims": (1,), "operation": "ADD", "scale": number}
            yield Sample((sample_values(type, (9, 11), rng),), options)


def reference_reduce(
    values: np.ndarray, dims: tuple[int, ...], operation: str, scale: float = 1
) -> np.ndarray:
    """The reduction in 64 bits: one step after the other."""
    op = REDUCE_OPS[operation]
    wide = {"f": np.float64, "b": np.bool_}.get(values.dtype.kind, np.int64)
    first = np.moveaxis(values.astype(wide), dims, range(len(dims)))
    out_shape = first.shape[len(dims) :]
    n_partials = int(np.prod(first.shape[: len(dims)], dtype=np.int64))
    start = np.full(out_shape, op.identity_of(as_type(values.dtype)), wide)
    result = fold(op.numpy, first.reshape((n_partials, *out_shape)), start)
    return np.asarray(result * scale if scale != 1 else result).astype(values.dtype)


def _ones(dtype: type, *shape: int) -> tuple[np.ndarray]:
    return (np.ones(shape, dtype),)


_ERRORS = (
    ErrorCase(
        Sample(_ones(np.float32, 3), {"dims": (1,), "operation": "ADD"}),
        "reduce got dimensions [1] of a tensor of shape [3]",
    ),
    ErrorCase(
        Sample(_ones(np.float32, 3), {"dims": (0, 0), "operation": "ADD"}), "at most once"
    ),
    ErrorCase(
        Sample(_ones(np.float32, 3), {"dims": (0,), "operation": "AD"}), "did you mean 'ADD'"
    ),
    ErrorCase(
        Sample(_ones(np.float32, 3), {"dims": (0,), "operation": "LOGICAL_OR"}), "expected bool"
    ),
    ErrorCase(
        Sample(_ones(np.float32, 3), {"dims": (0,), "operation": "MAX", "scale": 2.0}),
        "only ADD, SQUARE_ADD and LOG_ADD can scale or update",
    ),
    ErrorCase(
        Sample(_ones(np.float32, 3), {"dims": (0,), "operation": "ADD", "update": True}),
        "needs a tensor to update",
    ),
    ErrorCase(
        Sample(_ones(np.float32, 3), {"dims": (0,), "operation": "ADD", "out_type": INT}),
        "cannot turn float into int",
    ),
)  # fmt: skip


def entry() -> Op:
    """The entry of `popops.reduce`: samples and text cover every operation there is."""
    return Op(
        name="popops.reduce",
        function=reduce,
        about=f"reduce dimensions by {names_of(last='or')}",
        types=(FLOAT, HALF, INT, UNSIGNED_INT, BOOL),
        samples=_samples,
        reference=reference_reduce,
        codelets=(reduce_vertex,),
        errors=_ERRORS,
        tolerance={"FLOAT": 1e-5, "HALF": 2e-3},
    )


register(entry())


_ADDED: set[str] = set()  # names of operations that users registered


def register_reduction(op: ReduceOp) -> ReduceOp:
    """Add an operation to `popops.reduce`, its tests and its docs."""
    known = {f.__name__: f for other in REDUCE_OPS.values() for f in other.functions}
    clashes = [f.__name__ for f in op.functions if known.get(f.__name__, f) is not f]
    is_joined = op.joined_by in (op.name, *REDUCE_OPS)
    if op.name in REDUCE_OPS or clashes or not is_joined:
        raise PoplibsError(
            f"reduce cannot have the operation {op.name!r}.",
            source=user_source(),
            hint=f"the name {(clashes or [op.name])[0]} is taken"
            if is_joined
            else f"partial results are joined by one of {names_of()}, not by {op.join!r}",
        )
    REDUCE_OPS[op.name] = op
    _ADDED.add(op.name)
    _renew()
    return op


def remove_reduction(name: str) -> None:
    """Take back an operation that `register_reduction` added: for experiments and tests."""
    take_back(name, _ADDED, "reduction")
    del REDUCE_OPS[name]
    _renew()


def _renew() -> None:
    unregister("popops.reduce")
    register(entry())


def _reduce_two(graph: Graph, a: Tensor, b: Tensor, sequence: Sequence) -> tuple[Tensor, ...]:
    """Two reductions in shared compute sets."""
    return tuple(reduce_many(graph, [Reduction(a, [0]), Reduction(b, [1], "MAX")], sequence))


def _samples_of_two(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for first, second in (((7, 40), (3, 200)), ((300, 1), (1, 5))):
        yield Sample((sample_values(type, first, rng), sample_values(type, second, rng)))


register(
    Op(
        name="popops.reduce_many",
        function=_reduce_two,
        about="several reductions in shared compute sets",
        types=(FLOAT, HALF, INT, UNSIGNED_INT),
        samples=_samples_of_two,
        reference=lambda a, b: (reference_reduce(a, (0,), "ADD"), b.max(axis=1)),
        codelets=(reduce_vertex,),
        tolerance={"FLOAT": 1e-5, "HALF": 2e-3},
    )
)

"""Registry entries of the reductions: samples, NumPy references, errors."""

from collections.abc import Iterator

import numpy as np

from tremula.base.types import BOOL, FLOAT, HALF, INT, UNSIGNED_INT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops.reduction.codelets import OPERATIONS, reduce_vertex
from tremula.poplibs.popops.reduction.reduce import Reduction, reduce, reduce_many
from tremula.poplibs.registry import ErrorCase, Op, Sample, register

# Shapes and reduced dimensions: rows, columns, both ends, nothing, everything, size 1, empty.
_SHAPES = (
    ((5, 7), (0,)), ((5, 7), (1,)), ((400,), (0,)), ((6, 50, 3), (1,)), ((4, 5, 6, 7), (0, 2)),
    ((4, 5, 6, 7), (1, 3)), ((2, 3), ()), ((3, 1, 4), (1,)), ((600, 5), (0,)), ((1,), (0,)),
    ((3, 0), (1,)), ((40, 64), (0,)),
)  # fmt: skip


def sample_values(type: Type, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Values whose sums and products stay in range and far from cancelling."""
    if type is BOOL:
        return rng.random(shape) < 0.5
    if type.is_floating:
        return (0.5 + rng.random(shape)).astype(type.dtype)
    return rng.integers(1, 4, shape).astype(type.dtype)


def _samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    operations = [o.name for o in OPERATIONS.values() if type in o.types]
    for number, (shape, dims) in enumerate(_SHAPES):
        operation = operations[number % len(operations)]
        if operation == "MUL" and shape == (600, 5):
            operation = "ADD"  # a product of 600 halfs overflows
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
    """The reduction in 64 bits."""
    wide = values if values.dtype == bool else values.astype(
        np.float64 if values.dtype.kind == "f" else np.int64
    )  # fmt: skip
    identity = OPERATIONS[operation].identity
    if values.dtype.kind in "iu" and not np.isfinite(identity):
        identity = np.iinfo(values.dtype).max if identity > 0 else np.iinfo(values.dtype).min
    if operation == "SQUARE_ADD":
        wide = wide * wide
    ufunc = {
        "ADD": np.add, "SQUARE_ADD": np.add, "LOG_ADD": np.logaddexp, "MUL": np.multiply,
        "MIN": np.minimum, "MAX": np.maximum, "LOGICAL_AND": np.logical_and,
        "LOGICAL_OR": np.logical_or,
    }[operation]  # fmt: skip
    result = wide
    for dim in sorted(dims, reverse=True):
        result = ufunc.reduce(result, axis=dim, initial=identity)
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

register(
    Op(
        name="popops.reduce",
        function=reduce,
        about="reduce dimensions by ADD, SQUARE_ADD, LOG_ADD, MUL, MIN, MAX or a logical operation",
        types=(FLOAT, HALF, INT, UNSIGNED_INT, BOOL),
        samples=_samples,
        reference=reference_reduce,
        codelets=(reduce_vertex,),
        errors=_ERRORS,
        tolerance={"FLOAT": 1e-5, "HALF": 2e-3},
    )
)


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

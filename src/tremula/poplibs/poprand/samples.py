"""Registry entries of poprand: properties of random results, whose values are unknown.

A check gets the result, the sample's arrays and options, and returns what is wrong, or "".
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from tremula.base.types import FLOAT, HALF, INT, UNSIGNED_INT, Type, as_type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.poprand import codelets
from tremula.poplibs.poprand.distributions import (
    bernoulli,
    log_uniform,
    normal,
    truncated_normal,
    uniform,
)
from tremula.poplibs.poprand.dropout import dropout, shaped_dropout
from tremula.poplibs.poprand.seeding import set_seed
from tremula.poplibs.registry import ErrorCase, Op, Sample, register

SHAPES = ((1000,), (7, 13), (1,), (0, 3))
LEAST_NUMBERS = 500  # fewer say nothing about a distribution
MOST_ERRORS = 5.0  # standard errors a mean may be off
_SEEDING = (codelets.set_seed_codelet, codelets.save_and_set_seed_codelet,
            codelets.restore_seed_codelet)  # fmt: skip


def _samples(types: tuple[Type, ...], **options: object) -> Callable:
    """Samples of a shape each: the only operand is the reference, whose values are never read."""

    def make(type: Type, _: np.random.Generator) -> Iterator[Sample]:
        if type in types:
            for shape in SHAPES:
                yield Sample((np.zeros(shape, type.dtype),), {**options, "type": type.name})

    return make


def _on_reference(function: Callable) -> Callable:
    """The operation as the registry calls it: the reference is its operand, the seed is fixed."""

    def call(graph: Graph, reference: Tensor, sequence: Sequence, **options: object) -> Tensor:
        seed = graph.add_constant(UNSIGNED_INT, [2], [5, 9], mapping=0)
        type = options.pop("type")
        return function(graph, seed, 1, reference, type, *options.values(), sequence)

    return call


def _wrong(result: np.ndarray, low: float, high: float, mean: float, deviation: float) -> str:
    """What is wrong with numbers that should lie in a range and have a mean."""
    values = result.astype(np.float64)
    if values.size and not (values.min() >= low and values.max() <= high):
        return f"values of [{values.min()}, {values.max()}] leave [{low}, {high}]"
    error = MOST_ERRORS * deviation / math.sqrt(max(values.size, 1)) + 1e-3 * abs(mean)
    if values.size >= LEAST_NUMBERS and abs(values.mean() - mean) > error:
        return f"the mean is {values.mean()}, expected {mean} to within {error}"
    if values.size >= LEAST_NUMBERS and abs(values.std() - deviation) > 0.1 * deviation:
        return f"the deviation is {values.std()}, expected {deviation}"
    return ""


def _slack(type_name: object, value: float) -> float:
    """How far rounding to the type may move a value."""
    return abs(value) * (2.0**-10 if as_type(type_name) is HALF else 2.0**-22)


def _check_uniform(
    result: np.ndarray, _: np.ndarray, min_value: float, max_value: float, type: str
) -> str:
    is_int = as_type(type) is INT
    n = max_value - min_value + is_int  # of integers both ends count
    slack = _slack(type, max(abs(min_value), abs(max_value)))
    deviation = math.sqrt((n * n - is_int) / 12)
    middle = (min_value + max_value) / 2
    return _wrong(result, min_value - slack, max_value + slack, middle, deviation)


def _check_log_uniform(
    result: np.ndarray, _: np.ndarray, min_value: float, max_value: float, type: str
) -> str:
    width = math.log(max_value / min_value)
    mean = (max_value - min_value) / width
    square = (max_value**2 - min_value**2) / (2 * width)
    mean -= 0.5 if as_type(type) is INT else 0  # integers lose their fraction
    slack = _slack(type, max_value)
    deviation = math.sqrt(square - mean * mean)
    return _wrong(result, min_value - slack, max_value + slack, mean, deviation)


def _check_normal(result: np.ndarray, _: np.ndarray, mean: float, std_dev: float, type: str) -> str:
    far = 6 * std_dev + _slack(type, abs(mean) + 6 * std_dev)
    return _wrong(result, mean - far, mean + far, mean, std_dev)


def _check_truncated_normal(
    result: np.ndarray, _: np.ndarray, mean: float, std_dev: float, alpha: float, type: str
) -> str:
    density = math.exp(-alpha * alpha / 2) / math.sqrt(2 * math.pi)
    inside = math.erf(alpha / math.sqrt(2))
    deviation = std_dev * math.sqrt(1 - 2 * alpha * density / inside)
    far = alpha * std_dev + _slack(type, abs(mean) + alpha * std_dev)
    return _wrong(result, mean - far, mean + far, mean, deviation)


def _check_bernoulli(result: np.ndarray, _: np.ndarray, probability: float, type: str) -> str:
    if not np.isin(result, (0, 1)).all():
        return f"{type} values other than 0 and 1"
    deviation = math.sqrt(probability * (1 - probability))
    return _wrong(result, 0, 1, probability, deviation)


def _check_dropout(
    result: np.ndarray, x: np.ndarray, reference: np.ndarray, keep_probability: float, scale: float
) -> str:
    is_kept = result != 0
    scaled = (x.astype(np.float32) * np.float32(scale)).astype(x.dtype)
    if not np.array_equal(result[is_kept], scaled[is_kept]):
        return "kept elements are not the scaled ones"
    groups = is_kept.reshape(-1)[:: max(1, result.size // max(reference.size, 1))]
    deviation = math.sqrt(keep_probability * (1 - keep_probability))
    return _wrong(groups, 0, 1, keep_probability, deviation)


def _dropout_samples(is_shaped: bool) -> Callable:
    def make(type: Type, random: np.random.Generator) -> Iterator[Sample]:
        for shape in SHAPES:
            x = (1 + random.random(shape)).astype(type.dtype)
            reference = np.zeros((*shape[:-1], 1) if is_shaped else shape, type.dtype)
            yield Sample((x, reference), {"keep_probability": 0.75, "scale": 0.5})

    return make


def _on_two(function: Callable) -> Callable:
    def call(
        graph: Graph, x: Tensor, reference: Tensor, sequence: Sequence, **options: float
    ) -> Tensor:
        seed = graph.add_constant(UNSIGNED_INT, [2], [5, 9], mapping=0)
        return function(graph, seed, 1, x, reference, *options.values(), sequence)

    return call


def _error(expected: str, **options: object) -> ErrorCase:
    return ErrorCase(Sample((np.zeros(3, np.float32),), options), expected)


_NUMBERS, _FLOATS = (FLOAT, HALF, INT), (FLOAT, HALF)
for _function, _about, _types, _options, _check, _codelets, _errors in (
    (uniform, "numbers of a range, all equally likely", _NUMBERS,
     {"min_value": -3.0, "max_value": 12.0}, _check_uniform,
     (codelets.uniform_codelet, codelets.uniform_int_codelet),
     (_error("min_value <= max_value", min_value=1.0, max_value=0.0, type="FLOAT"),
      _error("does not make unsigned int", min_value=0.0, max_value=1.0, type="UNSIGNED_INT"),
      _error("nothing to choose from", min_value=0.2, max_value=0.8, type="INT"))),
    (log_uniform, "numbers whose logarithm is uniform", _NUMBERS,
     {"min_value": 2.0, "max_value": 50.0}, _check_log_uniform, (codelets.log_uniform_codelet,),
     (_error("a min_value above 0", min_value=0.0, max_value=1.0, type="FLOAT"),)),
    (normal, "normal numbers", _FLOATS, {"mean": 2.0, "std_dev": 0.5}, _check_normal,
     (codelets.normal_codelet,),
     (_error("a std_dev of 0 or more", mean=0.0, std_dev=-1.0, type="FLOAT"),
      _error("does not make int", mean=0.0, std_dev=1.0, type="INT"))),
    (truncated_normal, "normal numbers within some deviations of the mean", _FLOATS,
     {"mean": -1.0, "std_dev": 2.0, "alpha": 1.5}, _check_truncated_normal,
     (codelets.truncated_normal_codelet,),
     (_error("an alpha above 0", mean=0.0, std_dev=1.0, alpha=0.0, type="FLOAT"),)),
    (bernoulli, "ones with a probability, else zeros", _NUMBERS, {"probability": 0.3},
     _check_bernoulli, (codelets.bernoulli_codelet,),
     (_error("a probability of 0 to 1", probability=1.5, type="FLOAT"),)),
):  # fmt: skip
    register(
        Op(
            name=f"poprand.{_function.__name__}",
            function=_on_reference(_function),
            about=_about,
            types=_types,
            samples=_samples(_types, **_options),
            reference=None,
            check=_check,
            codelets=(*_codelets, *_SEEDING),
            errors=_errors,
        )
    )

for _function, _about, _is_shaped, _codelet in (
    (dropout, "elements kept with a probability and scaled", False, codelets.dropout_codelet),
    (shaped_dropout, "dropout of groups that share an element of a reference", True,
     codelets.bernoulli_codelet),
):  # fmt: skip
    register(
        Op(
            name=f"poprand.{_function.__name__}",
            function=_on_two(_function),
            about=_about,
            types=_FLOATS,
            samples=_dropout_samples(_is_shaped),
            reference=None,
            check=_check_dropout,
            codelets=(_codelet, *_SEEDING),
            errors=(
                ErrorCase(
                    Sample((np.zeros(3, np.int32),) * 2, {"keep_probability": 1.0, "scale": 1.0}),
                    "does not work on int",
                ),
                ErrorCase(
                    Sample((np.zeros(3, np.float32),) * 2, {"keep_probability": 2.0, "scale": 1.0}),
                    "a probability of 0 to 1",
                ),
            ),
        )
    )


def _seed_and_draw(graph: Graph, seed: Tensor, sequence: Sequence) -> Tensor:
    """set_seed, and numbers drawn after it without an explicit seed."""
    set_seed(graph, seed, 3, sequence)
    reference = graph.add_variable(FLOAT, [1000], "reference", mapping="linear")
    return uniform(graph, None, 0, reference, FLOAT, 0.0, 1.0, sequence)


def _seed_samples(_: Type, random: np.random.Generator) -> Iterator[Sample]:
    yield Sample((random.integers(0, 2**32, 2, np.uint32),))


def _check_seeded(result: np.ndarray, _: np.ndarray) -> str:
    return _wrong(result, 0, 1, 0.5, math.sqrt(1 / 12))


register(
    Op(
        name="poprand.set_seed",
        function=_seed_and_draw,
        about="starts the generators of all workers from a seed",
        types=(UNSIGNED_INT,),
        samples=_seed_samples,
        reference=None,
        check=_check_seeded,
        codelets=(codelets.set_seed_codelet, codelets.uniform_codelet),
        errors=(ErrorCase(Sample((np.zeros(3, np.uint32),)), "a seed has two elements"),),
    )
)

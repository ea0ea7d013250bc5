"""Registry entries of pooling: samples and NumPy references, a kernel element at a time."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from tremula.base.types import FLOAT, HALF, Type
from tremula.poplibs.popnn.pooling.codelets import pool_codelet
from tremula.poplibs.popnn.pooling.geometry import PoolingType, PoolParams
from tremula.poplibs.popnn.pooling.pool import (
    pool,
    pool_gradient_by_places,
    pool_input_gradient,
    pool_places,
)
from tremula.poplibs.popops.elementwise.codelets import element_codelet
from tremula.poplibs.registry import ErrorCase, Op, Sample, register


class _Windows:
    """Padded inputs and, for each kernel element, the view of what it meets in every window."""

    def __init__(self, params: PoolParams, field: tuple[int, ...]):
        self.params = params.complete(field)
        self.field, self.out = field, self.params.out_field(field)
        lower, upper = self.params.padding_lower, self.params.padding_upper
        self.pads = [(max(low, 0), max(high, 0)) for low, high in zip(lower, upper, strict=True)]
        self.skip = [max(-low, 0) for low in lower]

    def padded(self, x: np.ndarray, value: float) -> np.ndarray:
        room = [(0, 0), (0, 0), *self.pads]
        return np.pad(x.astype(np.float64), room, constant_values=value)

    def elements(self) -> Iterator[tuple[slice, ...]]:
        """Indices of a padded array, one per kernel element."""
        strides, out = self.params.stride, self.out
        apart = zip(self.params.kernel, self.params.dilation, strict=True)
        for offsets in product(*(range(0, k * a, a) for k, a in apart)):
            yield (slice(None), slice(None), *(
                slice(skip + k, skip + k + (n - 1) * s + 1, s)
                for skip, k, n, s in zip(self.skip, offsets, out, strides, strict=True)
            ))  # fmt: skip

    def counts(self) -> np.ndarray:
        there = self.padded(np.ones((1, 1, *self.field)), 0)
        return sum(there[at] for at in self.elements())  # pyright: ignore[reportReturnType]

    def unpadded(self, x: np.ndarray) -> np.ndarray:
        return x[(slice(None), slice(None), *(
            slice(low, low + n) for (low, _), n in zip(self.pads, self.field, strict=True)
        ))]  # fmt: skip


def _reference(x: np.ndarray, *, params: PoolParams) -> np.ndarray:
    windows = _Windows(params, x.shape[2:])
    is_max = windows.params.kind is PoolingType.MAX
    padded = windows.padded(x, -np.inf if is_max else 0)
    parts = np.stack([padded[at] for at in windows.elements()])
    result = parts.max(axis=0) if is_max else parts.sum(axis=0)
    if windows.params.kind is PoolingType.AVG:
        result = result / windows.counts()
    return result.astype(x.dtype)


def _gradient_reference(
    x: np.ndarray, pooled: np.ndarray, gradient: np.ndarray, *, params: PoolParams,
    use_scaled_gradient: bool = False,
) -> np.ndarray:  # fmt: skip
    windows = _Windows(params, x.shape[2:])
    g = gradient.astype(np.float64)
    padded = windows.padded(x, np.nan)
    is_max = windows.params.kind is PoolingType.MAX
    if windows.params.kind is PoolingType.AVG:
        g = g / windows.counts()
    if is_max and use_scaled_gradient:
        n_equal = sum((padded[at] == pooled).astype(np.float64) for at in windows.elements())
        g = (g / n_equal).astype(x.dtype).astype(np.float64)
    result = np.zeros_like(padded)
    for at in windows.elements():
        result[at] += g * (padded[at] == pooled) if is_max else g
    return windows.unpadded(result).astype(x.dtype)


def _places_reference(x: np.ndarray, pooled: np.ndarray, *, params: PoolParams) -> np.ndarray:
    windows = _Windows(params, x.shape[2:])
    numbers = np.arange(np.prod(windows.field)).reshape((1, 1, *windows.field))
    values, places = windows.padded(x, np.nan), windows.padded(numbers, -1)
    result = np.full(pooled.shape, -1.0)
    for at in windows.elements():
        result = np.where((result < 0) & (values[at] == pooled), places[at], result)
    return result.astype(np.int32)


def _by_places_reference(
    gradient: np.ndarray, places: np.ndarray, *, params: PoolParams, field: tuple[int, ...]
) -> np.ndarray:
    del params
    flat = np.zeros((*gradient.shape[:2], int(np.prod(field))))
    at = places.reshape((*places.shape[:2], -1))
    b, c = (np.arange(n) for n in at.shape[:2])
    np.add.at(flat, (b[:, None, None], c[:, None], at), gradient.reshape(at.shape))
    return flat.reshape((*gradient.shape[:2], *field)).astype(gradient.dtype)


_CASES = (
    ((2, 3, 6, 7), PoolParams("MAX", (2, 3), (2, 2))),
    ((1, 4, 5, 5), PoolParams("AVG", (3, 3), (2, 2), (1, 1), (1, 1))),
    ((2, 1, 9), PoolParams("SUM", (4,))),
    ((1, 2, 4, 3, 5), PoolParams("MAX", (2, 2, 3), (1, 2, 2), (0, 1, 1), (1, 0, 1))),
    ((3, 2, 7, 7), PoolParams("AVG", (7, 7))),
    ((1, 2, 8, 8), PoolParams("MAX", (2, 2), (3, 3), (-1, 0), (0, -2))),
    ((2, 2, 7, 6), PoolParams("MAX", (3, 2), (1, 2), (1, 0), (0, 1), (2, 3))),
)


def _acts(rng: np.random.Generator, element: Type, shape: tuple[int, ...]) -> np.ndarray:
    """Few different values, so that maxima are met more than once."""
    return (rng.integers(-6, 7, shape) / 2).astype(element.dtype)


def _samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, params in _CASES:
        yield Sample((_acts(rng, element, shape),), {"params": params})
    yield Sample((np.zeros((0, 3, 4), element.dtype),), {"params": PoolParams("MAX", (2,))})


def _gradient_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for number, (shape, params) in enumerate(_CASES):
        x = _acts(rng, element, shape)
        pooled = _reference(x, params=params)
        gradient = rng.normal(0, 1, pooled.shape).astype(element.dtype)
        options = {"params": params} | ({"use_scaled_gradient": True} if number == 0 else {})
        yield Sample((x, pooled, gradient), options)


def _place_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, params in _MAX_CASES:
        x = _acts(rng, element, shape)
        yield Sample((x, _reference(x, params=params)), {"params": params})


def _by_places_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape, params in _MAX_CASES:
        x = _acts(rng, element, shape)
        pooled = _reference(x, params=params)
        places = _places_reference(x, pooled, params=params)
        gradient = rng.normal(0, 1, pooled.shape).astype(element.dtype)
        yield Sample((gradient, places), {"params": params, "field": shape[2:]})


_MAX_CASES = [case for case in _CASES if case[1].kind == "MAX"]
_X = np.ones((1, 2, 4, 4), np.float32)


def _refused(params: PoolParams, expected: str, x: np.ndarray = _X) -> ErrorCase:
    return ErrorCase(Sample((x,), {"params": params}), expected)


register(Op(
    name="popnn.pool", function=pool,
    about="The maximum, average or sum of every window of a field.", types=(FLOAT, HALF),
    samples=_samples, reference=_reference, codelets=(pool_codelet,),
    errors=(
        _refused(PoolParams("MEAN", (2, 2)), "there is no pooling 'MEAN'"),
        _refused(PoolParams("MAX", (2,)), "pooling of a field [4, 4] got kernel [2]"),
        _refused(PoolParams("MAX", (5, 5)), "has no window"),
        _refused(PoolParams("MAX", (2, 2), (), (2, 0)), "a window of padding only"),
        _refused(PoolParams("MAX", (2, 0)), "pooling got kernel [2, 0]"),
        _refused(PoolParams("MAX", (2,)), "needs a tensor [batch, channels, field…]", _X[0, 0]),
        _refused(PoolParams("MAX", (2, 2)), "does not work on int", _X.astype(np.int32)),
    ),
    tolerance={"FLOAT": 1e-5, "HALF": 2e-3},
))  # fmt: skip
register(Op(
    name="popnn.pool_input_gradient", function=pool_input_gradient,
    about="The gradient of pool's input.", types=(FLOAT, HALF), samples=_gradient_samples,
    reference=_gradient_reference, codelets=(pool_codelet, element_codelet),
    errors=(
        ErrorCase(
            Sample((_X, _X, _X), {"params": PoolParams("MAX", (2, 2))}),
            "gives [1, 2, 3, 3], but the pooled tensor is float [1, 2, 4, 4]",
        ),
    ),
    tolerance={"FLOAT": 1e-5, "HALF": 4e-3},
))  # fmt: skip
register(Op(
    name="popnn.pool_places", function=pool_places,
    about="Where in the field the first maximum of every window is, counted row by row.",
    types=(FLOAT, HALF), samples=_place_samples, reference=_places_reference,
    codelets=(pool_codelet,),
    errors=(
        ErrorCase(
            Sample((_X, _X), {"params": PoolParams("MAX", (2, 2))}),
            "gives [1, 2, 3, 3], but the pooled tensor is float [1, 2, 4, 4]",
        ),
        ErrorCase(
            Sample((_X, _X), {"params": PoolParams("AVG", (1, 1))}), "only a maximum has a place"
        ),
    ),
))  # fmt: skip
register(Op(
    name="popnn.pool_gradient_by_places", function=pool_gradient_by_places,
    about="The gradient of a maximum's input, all of it to the place that pool_places found.",
    types=(FLOAT, HALF), samples=_by_places_samples, reference=_by_places_reference,
    codelets=(pool_codelet,),
    errors=(
        ErrorCase(
            Sample((_X, _X), {"params": PoolParams("MAX", (1, 1)), "field": (4, 4)}),
            "needs the places of every window as int [1, 2, 4, 4], got float [1, 2, 4, 4]",
        ),
    ),
    tolerance={"FLOAT": 1e-5, "HALF": 4e-3},
))  # fmt: skip

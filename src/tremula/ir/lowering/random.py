"""Lowerings of random operations: each draws from the workers' generators, through poprand."""

import numpy as np
from torch import fx

from tremula.base.types import BOOL, FLOAT, HALF, INT, UNSIGNED_INT, Type
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.nodes import overload_name
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops, poprand
from tremula.poplibs.popops.elementwise.expr import (
    _1,
    _2,
    _3,
    floor,
    log,
    minimum,
    poisson_quantile,
    select,
    sqrt,
)
from tremula.poplibs.poputil import broadcast_view

Shape = tuple[int, ...]
_DRAWN = (FLOAT, HALF)
_LARGE_RATE = 60.0  # of Poisson's distribution: from here on it is drawn as a normal one
_SMALLEST = 2.0**-24  # the step between the numbers that are drawn


# Operations that draw once, and whose operand says where and how much, not what.
_REDRAWN = {
    f"aten::{name}"
    for name in (
        "rand", "randn", "rand_like", "randn_like", "randint", "randint.low", "randint_like",
        "randint_like.low_dtype", "uniform", "bernoulli.p",
    )
}  # fmt: skip


def follows_from_seed(node: fx.Node) -> bool:
    """Whether a node's values can be drawn again from a seed and the layout alone."""
    return overload_name(node.target) in _REDRAWN


def new_seed(tiles: Tiles) -> Tensor:
    """Two random UNSIGNED_INT, from the workers' states."""
    drawn = poprand.uniform(
        tiles.graph, None, 0, _spread(tiles, (2,), INT), INT, -(2**31), 2**31 - 1,
        tiles.sequence, f"{tiles.name}/seed",
    )  # fmt: skip
    return drawn.reinterpret(UNSIGNED_INT)


def _spread(tiles: Tiles, shape: Shape, type: Type) -> Tensor:
    """A reference tensor for numbers spread evenly over all tiles: it repeats one element."""
    return broadcast_view(tiles.constant(0, type), shape)


def _below(high: float, low: float, type: Type) -> float:
    """The largest number of a type that is less than `high`."""
    kind = type.dtype.type if type in _DRAWN else np.float32
    return float(np.nextafter(kind(high), kind(low)))


def _uniform(
    tiles: Tiles, reference: Tensor, type: Type, low: float = 0.0, high: float = 1.0
) -> Tensor:
    """Numbers of [low, high)."""
    inner = type if type in _DRAWN else FLOAT
    last = _below(high, low, inner) if high > low else low
    drawn = poprand.uniform(
        tiles.graph, tiles.seed, 0, reference, inner, low, last, tiles.sequence, tiles.name
    )
    return tiles.cast(drawn, type)


def _normal(
    tiles: Tiles, reference: Tensor, type: Type, mean: float = 0.0, deviation: float = 1.0
) -> Tensor:
    inner = type if type in _DRAWN else FLOAT
    drawn = poprand.normal(
        tiles.graph, tiles.seed, 0, reference, inner, mean, deviation, tiles.sequence, tiles.name
    )
    return tiles.cast(drawn, type)


def _whole(tiles: Tiles, reference: Tensor, low: int, high: int) -> Tensor:
    """Whole numbers of [low, high)."""
    drawn = poprand.uniform(
        tiles.graph, tiles.seed, 0, reference, INT, low, high - 1, tiles.sequence, tiles.name
    )
    return tiles.cast(drawn, tiles.out_type)


# -- new tensors -----------------------------------------------------------------------------------


@lowers("rand", calls="poprand.uniform")
def rand(tiles: Tiles, _size: object, **_options: object) -> Tensor:
    return _uniform(tiles, _spread(tiles, tiles.out_shape, tiles.out_type), tiles.out_type)


@lowers("randn", calls="poprand.normal")
def randn(tiles: Tiles, _size: object, **_options: object) -> Tensor:
    return _normal(tiles, _spread(tiles, tiles.out_shape, tiles.out_type), tiles.out_type)


@lowers("rand_like", calls="poprand.uniform")
def rand_like(tiles: Tiles, x: Tensor, **_options: object) -> Tensor:
    return _uniform(tiles, x, tiles.out_type)


@lowers("randn_like", calls="poprand.normal")
def randn_like(tiles: Tiles, x: Tensor, **_options: object) -> Tensor:
    return _normal(tiles, x, tiles.out_type)


@lowers("randint", calls="poprand.uniform")
def randint(tiles: Tiles, high: int, _size: object, **_options: object) -> Tensor:
    return _whole(tiles, _spread(tiles, tiles.out_shape, INT), 0, high)


@lowers("randint.low", calls="poprand.uniform")
def randint_low(tiles: Tiles, low: int, high: int, _size: object, **_options: object) -> Tensor:
    return _whole(tiles, _spread(tiles, tiles.out_shape, INT), low, high)


@lowers("randint_like", calls="poprand.uniform")
def randint_like(tiles: Tiles, x: Tensor, high: int, **_options: object) -> Tensor:
    return _whole(tiles, x, 0, high)


@lowers("randint_like.low_dtype", calls="poprand.uniform")
def randint_like_low(tiles: Tiles, x: Tensor, low: int, high: int, **_options: object) -> Tensor:
    return _whole(tiles, x, low, high)


@lowers("randperm", calls="poprand.uniform, popops.sort_key_value")
def randperm(tiles: Tiles, n: int, **_options: object) -> Tensor:
    """Numbers in the order of random keys."""
    keys = poprand.uniform(
        tiles.graph, None, 0, _spread(tiles, (n,), INT), INT, -(2**31), 2**31 - 1,
        tiles.sequence, tiles.name,
    )  # fmt: skip
    numbers = tiles.constant(np.arange(n), INT)
    order = popops.sort_key_value(tiles.graph, keys, numbers, 0, tiles.sequence, tiles.name)
    return tiles.cast(order, tiles.out_type)


# -- new values for a tensor -----------------------------------------------------------------------


@lowers("uniform", calls="poprand.uniform")
def uniform(tiles: Tiles, x: Tensor, low: float = 0.0, high: float = 1.0, **_o: object) -> Tensor:
    return _uniform(tiles, x, tiles.out_type, low, high)


@lowers("normal_functional", calls="poprand.normal")
def normal(
    tiles: Tiles, x: Tensor, mean: float = 0.0, deviation: float = 1.0, **_o: object
) -> Tensor:
    return _normal(tiles, x, tiles.out_type, mean, deviation)


@lowers("normal.float_float", calls="poprand.normal")
def normal_of_size(
    tiles: Tiles, mean: float, deviation: float, _size: object, **_o: object
) -> Tensor:
    reference = _spread(tiles, tiles.out_shape, tiles.out_type)
    return _normal(tiles, reference, tiles.out_type, mean, deviation)


@lowers(
    "normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor",
    calls="poprand.normal, popops.map",
)  # fmt: skip
def normal_of_tensors(
    tiles: Tiles, mean: Tensor | float, deviation: Tensor | float = 1.0, **_o: object
) -> Tensor:
    drawn = _normal(tiles, _spread(tiles, tiles.out_shape, tiles.out_type), tiles.out_type)
    mean, deviation = (
        value if isinstance(value, Tensor) else tiles.constant(value, tiles.out_type)
        for value in (mean, deviation)
    )
    scaled = popops.mul(tiles.graph, drawn, deviation, tiles.sequence, tiles.name)
    return popops.add(tiles.graph, scaled, mean, tiles.sequence, tiles.name)


@lowers("exponential", calls="poprand.uniform, popops.map")
def exponential(tiles: Tiles, x: Tensor, rate: float = 1.0, **_options: object) -> Tensor:
    drawn = _exponential(tiles, x)
    factor = tiles.constant(1 / rate, FLOAT)
    scaled = popops.mul(tiles.graph, drawn, factor, tiles.sequence, tiles.name)
    return tiles.cast(scaled, tiles.out_type)


def _exponential(tiles: Tiles, reference: Tensor) -> Tensor:
    """Positive floats: minus the logarithm of numbers that are neither 0 nor 1."""
    drawn = poprand.uniform(
        tiles.graph, None, 0, reference, FLOAT, _SMALLEST, 1 - _SMALLEST, tiles.sequence,
        tiles.name,
    )  # fmt: skip
    return popops.map(tiles.graph, -log(_1), [drawn], tiles.sequence, tiles.name)


@lowers("bernoulli.p", calls="poprand.bernoulli")
def bernoulli_p(tiles: Tiles, x: Tensor, probability: float = 0.5, **_options: object) -> Tensor:
    return _ones(tiles, x, tiles.out_type, probability)


@lowers("bernoulli", calls="poprand.uniform, popops.lt")
def bernoulli(tiles: Tiles, probabilities: Tensor, **_options: object) -> Tensor:
    drawn = _uniform(tiles, probabilities, FLOAT)
    limits = tiles.cast(probabilities, FLOAT)
    hits = popops.lt(tiles.graph, drawn, limits, tiles.sequence, tiles.name)
    return tiles.cast(hits, tiles.out_type)


def _ones(tiles: Tiles, reference: Tensor, type: Type, probability: float) -> Tensor:
    inner = type if type in (*_DRAWN, INT) else INT
    drawn = poprand.bernoulli(
        tiles.graph, tiles.seed, 0, reference, inner, probability, tiles.sequence, tiles.name
    )
    return tiles.cast(drawn, type)


@lowers("native_dropout", calls="poprand.bernoulli, popops.map")
def native_dropout(
    tiles: Tiles, x: Tensor, probability: float, train: bool | None
) -> tuple[Tensor, Tensor]:
    """The kept elements, scaled, and the mask of them."""
    if train is False or probability == 0:
        return x, broadcast_view(tiles.constant(True, BOOL), x.shape)
    mask = _ones(tiles, x, x.type, 1 - probability)
    scale = 1 / (1 - probability) if probability < 1 else 0.0
    factor = tiles.constant(scale, x.type)
    scaled = popops.map(tiles.graph, _1 * _2 * _3, [x, mask, factor], tiles.sequence, tiles.name)
    return scaled, tiles.cast(mask, BOOL)


@lowers("poisson", calls="poprand.uniform, poprand.normal, popops.map")
def poisson(tiles: Tiles, rate: Tensor, *_generator: object, **_o: object) -> Tensor:
    """Small rates by the inverse of their distribution, large ones by the normal one they near."""
    rate = tiles.cast(rate, FLOAT)
    share, wave = _uniform(tiles, rate, FLOAT), _normal(tiles, rate, FLOAT)
    far = floor(_1 + sqrt(_1) * _3 + 0.5)
    drawn = select(poisson_quantile(minimum(_1, _LARGE_RATE), _2), far, _1 <= _LARGE_RATE)
    result = popops.map(tiles.graph, drawn, [rate, share, wave], tiles.sequence, tiles.name)
    return tiles.cast(result, tiles.out_type)


# -- whole numbers, in place -----------------------------------------------------------------------


@lowers("random", calls="poprand.uniform")
def random(tiles: Tiles, x: Tensor, **_o: object) -> Tensor:
    """Below the largest number up to which the type has all whole ones."""
    type = tiles.out_type
    high = {FLOAT: 2**24, HALF: 2**11, BOOL: 2}.get(type)
    high = 2**31 - 1 if high is None and type.n_bytes == 4 else high
    return _whole(tiles, x, 0, high or int(np.iinfo(type.dtype).max) + 1)


@lowers("random.to", calls="poprand.uniform")
def random_to(tiles: Tiles, x: Tensor, high: int, **_o: object) -> Tensor:
    return _whole(tiles, x, 0, high)


@lowers("random.from", calls="poprand.uniform")
def random_from(tiles: Tiles, x: Tensor, low: int, high: int | None = None, **_o: object) -> Tensor:
    return _whole(tiles, x, low, 2**31 - 1 if high is None else high)


@lowers("multinomial", calls="poprand.uniform, popops.top_k_with_permutation, popops.arg_max")
def multinomial(
    tiles: Tiles, weights: Tensor, n: int, replacement: bool = False, **_options: object
) -> Tensor:
    """A race: the likelihood that weight / exponential is the largest is the weight's share."""
    weights = tiles.cast(weights, FLOAT)
    shape = (n, *weights.shape) if replacement else weights.shape
    times = _exponential(tiles, _spread(tiles, shape, FLOAT))
    speed = popops.div(tiles.graph, weights, times, tiles.sequence, tiles.name)
    if replacement:
        places = popops.arg_max(tiles.graph, speed, tiles.sequence, tiles.name)
        order = [*range(1, places.rank), 0]
        return places.dim_shuffle(order).reinterpret(INT)
    _, places = popops.top_k_with_permutation(
        tiles.graph, speed, n, tiles.sequence, tiles.name, sort_order="DESCENDING"
    )
    return places.reinterpret(INT)

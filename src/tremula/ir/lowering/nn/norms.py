"""Lowerings of layer, group and batch norm and their gradients.

Some dimensions of the activations are kept, for they have separate statistics; the others are
reduced. The mean is taken off before squares are summed, in float; what is centred is also what
gets scaled, so this costs no more passes than squaring first.

Batch norm of halves is popnn's: sums of values and of squares in one pass, in float, then halves
minus the mean, times the inverse deviation, times gamma, plus beta. Gradients of batch and group
norm of halves are popnn's, too: whitened activations and products are halves, sums are floats.
"""

import math
from dataclasses import dataclass

from tremula.base.types import FLOAT, HALF, Type
from tremula.ir.lowering.pointwise.map import narrow, wide
from tremula.ir.lowering.reductions import without_padding
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.popops import Reduction
from tremula.poplibs.popops.elementwise.expr import (
    Expr,
    PlaceHolder,
    _1,
    _2,
    _3,
    maximum,
    rsqrt,
    square,
)
from tremula.poplibs.poputil import create_broadcast_operand

Kept = tuple[int, ...]


@dataclass(frozen=True)
class Norm:
    """A normalisation: activations as [batch, channels, …], or split for groups."""

    tiles: Tiles
    x: Tensor
    statistic_dims: Kept  # dimensions with separate statistics
    channels: Kept  # dimensions of gamma and beta
    is_popnn: bool = False  # halves are computed with as halves

    @property
    def reduced(self) -> list[int]:
        return [d for d in range(self.x.rank) if d not in self.statistic_dims]

    @property
    def n(self) -> int:
        """Elements behind each statistic."""
        return math.prod(self.x.shape[d] for d in self.reduced)

    def beside(self, statistic: Tensor) -> Tensor:
        """One value per statistic, shaped to be repeated over the reduced dimensions."""
        return statistic.reshape(
            [n if d in self.statistic_dims else 1 for d, n in enumerate(self.x.shape)]
        )

    def per_channel(self, parameter: Tensor) -> Tensor:
        shape = [n if d in self.channels else 1 for d, n in enumerate(self.x.shape)]
        return parameter.reshape(shape)

    def map(self, expr: Expr, *tensors: Tensor) -> Tensor:
        return popops.map(
            self.tiles.graph, expr, list(tensors), self.tiles.sequence, self.tiles.name
        )

    def reduce(self, *sums: Reduction) -> list[Tensor]:
        tiles = self.tiles
        return popops.reduce_many(tiles.graph, list(sums), tiles.sequence, tiles.name)

    def statistics(self) -> tuple[Tensor, Tensor, Tensor]:
        """Centred activations, mean and (biased) variance: floats."""
        (mean,) = self.reduce(Reduction(self.x, self.reduced, "ADD", 1 / self.n, out_type=FLOAT))
        centred = self.map(wide(_1, self.x.type) - _2, self.x, self.beside(mean))
        (variance,) = self.reduce(Reduction(centred, self.reduced, "SQUARE_ADD", 1 / self.n))
        return centred, mean, variance

    def means(self, *operands: tuple[Tensor, str]) -> list[Tensor]:
        """Of values shaped as the activations, by operations: floats.

        Those of popnn lie where the activations are, as operands that are repeated do
        (poplin/Norms.cpp, normReduce).
        """
        outs: list[Tensor | None] = [None] * len(operands)
        if self.is_popnn and len(self.statistic_dims) == 1:
            graph, name = self.tiles.graph, self.tiles.name
            (dim,) = self.statistic_dims
            like = create_broadcast_operand(graph, self.x, self.x.type, dim, name, has_dither=True)
            outs = [graph.clone(like, name, type=FLOAT) for _ in operands]
        return self.reduce(
            *(
                Reduction(values, self.reduced, operation, 1 / self.n, out_type=FLOAT, out=out)
                for (values, operation), out in zip(operands, outs, strict=True)
            )
        )

    def plain_statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and variance, floats, from sums of values and of squares."""
        mean, power = self.means((self.x, "ADD"), (self.x, "SQUARE_ADD"))
        return mean, self.map(maximum(_2 - square(_1), 0.0), mean, power)

    def inverse(self, variance: Tensor, epsilon: float) -> Tensor:
        return self.map(rsqrt(wide(_1, variance.type) + epsilon), variance)

    def scaled(
        self, centred: Tensor, inverse: Tensor, gamma: Tensor | None, beta: Tensor | None
    ) -> Tensor:
        """Centred · inverse · gamma + beta, rounded once to the type of the activations."""
        expr, tensors = _1 * _2, [centred, self.beside(inverse)]
        if gamma is not None:
            tensors.append(self.per_channel(gamma))
            expr = expr * wide(PlaceHolder(len(tensors)), gamma.type)
        if beta is not None:
            tensors.append(self.per_channel(beta))
            expr = expr + wide(PlaceHolder(len(tensors)), beta.type)
        return self.map(narrow(expr, self.x.type), *tensors)

    def scaled_halves(
        self, mean: Tensor, inverse: Tensor, gamma: Tensor | None, beta: Tensor | None
    ) -> Tensor:
        """Whitened · gamma + beta, step by step in halves."""
        result = self.whitened(mean, inverse)
        operands = [self.per_channel(t) for t in (gamma, beta) if t is not None]
        if gamma is not None and beta is not None:
            return self.map(_1 * _2 + _3, result, *operands)
        if not operands:
            return result
        return self.map(_1 + _2 if gamma is None else _1 * _2, result, *operands)

    def whitened(self, mean: Tensor, inverse: Tensor) -> Tensor:
        """(x - mean) · inverse: a float, or as popnn has it of the activations' type."""
        type_ = self.x.type if self.is_popnn else FLOAT
        mean, inverse = self.tiles.cast(mean, type_), self.tiles.cast(inverse, type_)
        expr = ((_1 if self.is_popnn else wide(_1, self.x.type)) - _2) * _3
        return self.map(expr, self.x, self.beside(mean), self.beside(inverse))

    def parameter_gradients(
        self, whitened: Tensor, gradient: Tensor, mask: list[bool]
    ) -> list[Tensor | None]:
        """Of gamma and beta: sums of gradient · whitened and of gradient; floats."""
        dims = [d for d in range(self.x.rank) if d not in self.channels]
        sums = []
        if mask[0]:
            products = self.map(_1 * self._as(whitened, _2, gradient.type), whitened, gradient)
            sums.append(Reduction(products, dims, "ADD", out_type=FLOAT))
        if mask[1]:
            sums.append(Reduction(gradient, dims, "ADD", out_type=FLOAT))
        result = iter(self.reduce(*sums) if sums else ())
        return [next(result) if wanted else None for wanted in mask[:2]]

    def input_gradient(
        self, whitened: Tensor, gradient: Tensor, inverse: Tensor, gamma: Tensor | None
    ) -> Tensor:
        """(g - mean(g) - w · mean(g·w)) · inverse, where g is gradient · gamma."""
        if gamma is not None:
            of_gamma = self._as(whitened, _2, gamma.type)
            product = self._as(whitened, _1, gradient.type) * of_gamma
            gradient = self.map(product, gradient, self.per_channel(gamma))
        g = self._as(whitened, _1, gradient.type)
        products = self.map(g * _2, gradient, whitened)
        mean, share = self.means((gradient, "ADD"), (products, "ADD"))
        return self._through_statistics(gradient, whitened, mean, share, inverse)

    def scaled_gradient(self, gradient: Tensor, inverse: Tensor, gamma: Tensor | None) -> Tensor:
        """Gradient · inverse · gamma: where the statistics do not depend on the activations."""
        return self.scaled(self.tiles.cast(gradient, FLOAT), inverse, gamma, None)

    def _through_statistics(
        self, gradient: Tensor, whitened: Tensor, mean: Tensor, share: Tensor, inverse: Tensor
    ) -> Tensor:
        g, w, m, s, i = (PlaceHolder(k) for k in range(1, 6))
        expr = (self._as(whitened, g, gradient.type) - m - w * s) * i
        if whitened.type is FLOAT:
            expr = narrow(expr, self.x.type)
        casts = [self.tiles.cast(t, whitened.type) for t in (mean, share, inverse)]
        return self.map(expr, gradient, whitened, *map(self.beside, casts))

    def _as(self, other: Tensor, value: Expr, type_: Type) -> Expr:
        """An operand in the type of another, which is its own or a float."""
        return value if other.type is type_ else wide(value, type_)


# -- layer norm ------------------------------------------------------------------------------------


def _layer(tiles: Tiles, x: Tensor, normalised: list[int]) -> Norm:
    n = math.prod(int(size) for size in normalised)
    rows = x.reshape([x.n_elems // max(n, 1), n])
    return Norm(tiles, rows, (0,), (1,))


@lowers("native_layer_norm", calls="popops.reduce_many, popops.map")
def native_layer_norm(
    tiles: Tiles,
    x: Tensor,
    normalised: list[int],
    gamma: Tensor | None,
    beta: Tensor | None,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return _forward(tiles, _layer(tiles, x, normalised), gamma, beta, epsilon)


def _forward(
    tiles: Tiles, norm: Norm, gamma: Tensor | None, beta: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Result, mean and inverse deviation in the shapes and types PyTorch keeps them."""
    centred, mean, variance = norm.statistics()
    inverse = norm.inverse(variance, epsilon)
    return (
        _as_result(tiles, 0, norm.scaled(centred, inverse, gamma, beta)),
        _as_result(tiles, 1, mean),
        _as_result(tiles, 2, inverse),
    )


def _as_result(tiles: Tiles, index: int, value: Tensor) -> Tensor:
    return tiles.cast(value, tiles.result_type(index)).reshape(list(tiles.result_shape(index)))


def _gradients(tiles: Tiles, *statistics: Tensor | None) -> tuple[Tensor | None, ...]:
    """As results, those that are wanted."""
    return tuple(None if g is None else _as_result(tiles, i, g) for i, g in enumerate(statistics))


@lowers("native_layer_norm_backward", calls="popops.reduce_many, popops.map")
def native_layer_norm_backward(  # noqa: PLR0917 - as ATen
    tiles: Tiles, gradient: Tensor, x: Tensor, normalised: list[int], mean: Tensor, inverse: Tensor,
    gamma: Tensor | None, _beta: Tensor | None, mask: list[bool],
) -> tuple:  # fmt: skip
    return _backward(tiles, _layer(tiles, x, normalised), gradient, mean, inverse, gamma, mask)


def _backward(
    tiles: Tiles, norm: Norm, gradient: Tensor, mean: Tensor, inverse: Tensor,
    gamma: Tensor | None, mask: list[bool],
) -> tuple:  # fmt: skip
    gradient = without_padding(tiles, gradient.reshape(list(norm.x.shape)))
    whitened = norm.whitened(mean, inverse)
    of_x = norm.input_gradient(whitened, gradient, inverse, gamma) if mask[0] else None
    return _gradients(tiles, of_x, *norm.parameter_gradients(whitened, gradient, mask[1:]))


# -- group norm ------------------------------------------------------------------------------------


def _all_halves(*tensors: Tensor | None) -> bool:
    return all(t is None or t.type is HALF for t in tensors)


def _group(
    tiles: Tiles, x: Tensor, n_batch: int, n_channels: int, n_groups: int,
    *parameters: Tensor | None,
) -> Norm:  # fmt: skip
    n_each = n_channels // n_groups
    grouped = x.reshape([n_batch, n_groups, n_each, x.n_elems // max(n_batch * n_channels, 1)])
    return Norm(tiles, grouped, (0, 1), (1, 2), is_popnn=_all_halves(x, *parameters))


@lowers("native_group_norm", calls="popops.reduce_many, popops.map")
def native_group_norm(  # noqa: PLR0917 - as ATen
    tiles: Tiles, x: Tensor, gamma: Tensor | None, beta: Tensor | None, n_batch: int,
    n_channels: int, _n_field: int, n_groups: int, epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    norm = _group(tiles, x, n_batch, n_channels, n_groups)
    return _forward(tiles, norm, gamma, beta, epsilon)


@lowers("native_group_norm_backward", calls="popops.reduce_many, popops.map")
def native_group_norm_backward(  # noqa: PLR0913, PLR0917 - as ATen
    tiles: Tiles, gradient: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, gamma: Tensor | None,
    n_batch: int, n_channels: int, _n_field: int, n_groups: int, mask: list[bool],
) -> tuple:  # fmt: skip
    norm = _group(tiles, x, n_batch, n_channels, n_groups, gamma)
    return _backward(tiles, norm, gradient, mean, inverse, gamma, mask)


# -- group norm of strided channels ----------------------------------------------------------------


def _strided_group(tiles: Tiles, x: Tensor, n_groups: int, *parameters: Tensor | None) -> Norm:
    """Group g has channels g, g + n_groups, …: groups are the inner part of the channels."""
    n_batch, n_channels = x.shape[:2]
    n_field = x.n_elems // max(n_batch * n_channels, 1)
    grouped = x.reshape([n_batch, n_channels // n_groups, n_groups, n_field])
    return Norm(tiles, grouped, (0, 2), (1, 2), is_popnn=_all_halves(x, *parameters))


@lowers("tremula::strided_group_norm", calls="popops.reduce_many, popops.map")
def strided_group_norm(
    tiles: Tiles, x: Tensor, gamma: Tensor | None, beta: Tensor | None, n_groups: int,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return _forward(tiles, _strided_group(tiles, x, n_groups), gamma, beta, epsilon)


@lowers("tremula::strided_group_norm_backward", calls="popops.reduce_many, popops.map")
def strided_group_norm_backward(  # noqa: PLR0917 - as ATen's
    tiles: Tiles, gradient: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, gamma: Tensor | None,
    n_groups: int, mask: list[bool],
) -> tuple:  # fmt: skip
    norm = _strided_group(tiles, x, n_groups, gamma)
    return _backward(tiles, norm, gradient, mean, inverse, gamma, mask)


# -- batch norm ------------------------------------------------------------------------------------


def _batch(tiles: Tiles, x: Tensor, *parameters: Tensor | None) -> Norm:
    return Norm(tiles, x, (1,), (1,), is_popnn=_all_halves(x, *parameters))


@lowers(
    "native_batch_norm",
    "_native_batch_norm_legit_functional",
    calls="popops.reduce_many, popops.map",
)
def native_batch_norm(  # noqa: PLR0917 - as ATen
    tiles: Tiles, x: Tensor, gamma: Tensor | None, beta: Tensor | None, running_mean: Tensor | None,
    running_variance: Tensor | None, training: bool, momentum: float, epsilon: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Normalised, saved mean and inverse deviation; the functional form also new running values."""
    if not training:
        running = _given(running_mean), _given(running_variance)
        results = _with_running(tiles, x, gamma, beta, *running, epsilon)
        return (*results, *running)[: len(tiles.node.meta["val"])]
    norm = _batch(tiles, x, gamma, beta)
    result, mean, variance, inverse = _batch_statistics(norm, gamma, beta, epsilon)
    results = [result, mean, inverse]
    if running_mean is not None:
        unbiased = momentum * norm.n / max(norm.n - 1, 1)
        results.append(_moved(tiles, running_mean, mean, momentum, momentum))
        results.append(_moved(tiles, _given(running_variance), variance, momentum, unbiased))
    n_results = len(tiles.node.meta["val"])
    return tuple(_as_result(tiles, index, v) for index, v in enumerate(results[:n_results]))


def _batch_statistics(
    norm: Norm, gamma: Tensor | None, beta: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Result, mean, variance and inverse deviation of a batch."""
    if norm.is_popnn:
        mean, variance = norm.plain_statistics()
        inverse = norm.inverse(variance, epsilon)
        return norm.scaled_halves(mean, inverse, gamma, beta), mean, variance, inverse
    centred, mean, variance = norm.statistics()
    inverse = norm.inverse(variance, epsilon)
    return norm.scaled(centred, inverse, gamma, beta), mean, variance, inverse


def _given(statistic: Tensor | None) -> Tensor:
    """PyTorch rejects a model without the statistics that it needs when it is captured."""
    assert statistic is not None, "a batch norm needs statistics, of the batch or running ones"
    return statistic


def _moved(tiles: Tiles, running: Tensor, new: Tensor, momentum: float, share: float) -> Tensor:
    """(1 - momentum) · running + share · new; as operands, numbers need no separate codelet."""
    weights = [tiles.constant([w], FLOAT) for w in (1 - momentum, share)]
    expr = wide(_1, running.type) * _2 + _3 * PlaceHolder(4)
    operands = [running, weights[0], new, weights[1]]
    expr = narrow(expr, running.type)
    return popops.map(tiles.graph, expr, operands, tiles.sequence, f"{tiles.name}/running")


def _with_running(
    tiles: Tiles, x: Tensor, gamma: Tensor | None, beta: Tensor | None, mean: Tensor,
    variance: Tensor, epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Normalised by running values; PyTorch saves nothing then."""
    norm = _batch(tiles, x)
    inverse = norm.inverse(variance, epsilon)
    column = norm.beside(tiles.cast(mean, FLOAT))
    centred = norm.map(wide(_1, x.type) - _2, x, column)
    result = norm.scaled(centred, inverse, gamma, beta)
    mean_saved, inverse_saved = (
        tiles.new(tiles.result_shape(k), tiles.result_type(k)) for k in (1, 2)
    )
    return result, mean_saved, inverse_saved


@lowers("_native_batch_norm_legit_no_training", calls="popops.map")
def batch_norm_no_training(
    tiles: Tiles, x: Tensor, gamma: Tensor | None, beta: Tensor | None, mean: Tensor,
    variance: Tensor, _momentum: float, epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return _with_running(tiles, x, gamma, beta, mean, variance, epsilon)


@lowers("_native_batch_norm_legit.no_stats", calls="popops.reduce_many, popops.map")
def batch_norm_no_stats(
    tiles: Tiles, x: Tensor, gamma: Tensor | None, beta: Tensor | None, _training: bool,
    _momentum: float, epsilon: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    norm = _batch(tiles, x, gamma, beta)
    result, mean, _, inverse = _batch_statistics(norm, gamma, beta, epsilon)
    return tuple(_as_result(tiles, index, v) for index, v in enumerate((result, mean, inverse)))


@lowers("native_batch_norm_backward", calls="popops.reduce_many, popops.map")
def native_batch_norm_backward(  # noqa: PLR0913, PLR0917 - as ATen
    tiles: Tiles, gradient: Tensor, x: Tensor, gamma: Tensor | None, running_mean: Tensor | None,
    running_variance: Tensor | None, mean: Tensor | None, inverse: Tensor | None, training: bool,
    epsilon: float, mask: list[bool],
) -> tuple:  # fmt: skip
    norm = _batch(tiles, x, gamma)
    if training:
        return _backward(tiles, norm, gradient, _given(mean), _given(inverse), gamma, mask)
    inverse = norm.inverse(_given(running_variance), epsilon)
    whitened = norm.whitened(_given(running_mean), inverse)
    of_x = norm.scaled_gradient(gradient, inverse, gamma) if mask[0] else None
    return _gradients(tiles, of_x, *norm.parameter_gradients(whitened, gradient, mask[1:]))

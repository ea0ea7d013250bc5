"""Lowerings of layer, group and batch norm and their gradients.

Some dimensions of the activations are kept, for they have separate statistics; the others are
reduced. The mean is taken off before squares are summed, in float; what is centred is also what
gets scaled, so this costs no more passes than squaring first.
"""

import math
from dataclasses import dataclass

from tremula.base.types import FLOAT
from tremula.ir.lowering.pointwise.map import narrow, wide
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.popops import Reduction
from tremula.poplibs.popops.elementwise.expr import Expr, PlaceHolder, _1, _2, _3, rsqrt

Kept = tuple[int, ...]


@dataclass(frozen=True)
class Norm:
    """A normalisation: activations as [batch, channels, …], or split for groups."""

    tiles: Tiles
    x: Tensor
    statistic_dims: Kept  # dimensions with separate statistics
    channels: Kept  # dimensions of gamma and beta

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

    def whitened(self, mean: Tensor, inverse: Tensor) -> Tensor:
        """(x - mean) · inverse: a float."""
        mean, inverse = self.tiles.cast(mean, FLOAT), self.tiles.cast(inverse, FLOAT)
        expr = (wide(_1, self.x.type) - _2) * _3
        return self.map(expr, self.x, self.beside(mean), self.beside(inverse))

    def parameter_gradients(
        self, whitened: Tensor, gradient: Tensor, mask: list[bool]
    ) -> list[Tensor | None]:
        """Of gamma and beta: sums of gradient · whitened and of gradient; floats."""
        dims = [d for d in range(self.x.rank) if d not in self.channels]
        sums = []
        if mask[0]:
            products = self.map(_1 * wide(_2, gradient.type), whitened, gradient)
            sums.append(Reduction(products, dims, "ADD"))
        if mask[1]:
            sums.append(Reduction(gradient, dims, "ADD", out_type=FLOAT))
        result = iter(self.reduce(*sums) if sums else ())
        return [next(result) if wanted else None for wanted in mask[:2]]

    def input_gradient(
        self, whitened: Tensor, gradient: Tensor, inverse: Tensor, gamma: Tensor | None
    ) -> Tensor:
        """(g - mean(g) - w · mean(g·w)) · inverse, where g is gradient · gamma."""
        if gamma is not None:
            product = wide(_1, gradient.type) * wide(_2, gamma.type)
            gradient = self.map(product, gradient, self.per_channel(gamma))
        g = wide(_1, gradient.type)
        products = self.map(g * _2, gradient, whitened)
        mean, share = self.reduce(
            Reduction(gradient, self.reduced, "ADD", 1 / self.n, out_type=FLOAT),
            Reduction(products, self.reduced, "ADD", 1 / self.n),
        )
        return self._through_statistics(gradient, whitened, mean, share, inverse)

    def scaled_gradient(self, gradient: Tensor, inverse: Tensor, gamma: Tensor | None) -> Tensor:
        """Gradient · inverse · gamma: where the statistics do not depend on the activations."""
        return self.scaled(self.tiles.cast(gradient, FLOAT), inverse, gamma, None)

    def _through_statistics(
        self, gradient: Tensor, whitened: Tensor, mean: Tensor, share: Tensor, inverse: Tensor
    ) -> Tensor:
        g, w, m, s, i = (PlaceHolder(k) for k in range(1, 6))
        expr = (wide(g, gradient.type) - m - w * s) * i
        per_statistic = [self.beside(t) for t in (mean, share, self.tiles.cast(inverse, FLOAT))]
        return self.map(narrow(expr, self.x.type), gradient, whitened, *per_statistic)


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
    gradient = gradient.reshape(list(norm.x.shape))
    whitened = norm.whitened(mean, inverse)
    of_x = norm.input_gradient(whitened, gradient, inverse, gamma) if mask[0] else None
    return _gradients(tiles, of_x, *norm.parameter_gradients(whitened, gradient, mask[1:]))


# -- group norm ------------------------------------------------------------------------------------


def _group(tiles: Tiles, x: Tensor, n_batch: int, n_channels: int, n_groups: int) -> Norm:
    n_each = n_channels // n_groups
    grouped = x.reshape([n_batch, n_groups, n_each, x.n_elems // max(n_batch * n_channels, 1)])
    return Norm(tiles, grouped, (0, 1), (1, 2))


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
    norm = _group(tiles, x, n_batch, n_channels, n_groups)
    return _backward(tiles, norm, gradient, mean, inverse, gamma, mask)


# -- batch norm ------------------------------------------------------------------------------------


def _batch(tiles: Tiles, x: Tensor) -> Norm:
    return Norm(tiles, x, (1,), (1,))


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
    norm = _batch(tiles, x)
    centred, mean, variance = norm.statistics()
    inverse = norm.inverse(variance, epsilon)
    results = [norm.scaled(centred, inverse, gamma, beta), mean, inverse]
    if running_mean is not None:
        unbiased = momentum * norm.n / max(norm.n - 1, 1)
        results.append(_moved(tiles, running_mean, mean, momentum, momentum))
        results.append(_moved(tiles, _given(running_variance), variance, momentum, unbiased))
    n_results = len(tiles.node.meta["val"])
    return tuple(_as_result(tiles, index, v) for index, v in enumerate(results[:n_results]))


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
    return _forward(tiles, _batch(tiles, x), gamma, beta, epsilon)


@lowers("native_batch_norm_backward", calls="popops.reduce_many, popops.map")
def native_batch_norm_backward(  # noqa: PLR0913, PLR0917 - as ATen
    tiles: Tiles, gradient: Tensor, x: Tensor, gamma: Tensor | None, running_mean: Tensor | None,
    running_variance: Tensor | None, mean: Tensor | None, inverse: Tensor | None, training: bool,
    epsilon: float, mask: list[bool],
) -> tuple:  # fmt: skip
    norm = _batch(tiles, x)
    if training:
        return _backward(tiles, norm, gradient, _given(mean), _given(inverse), gamma, mask)
    inverse = norm.inverse(_given(running_variance), epsilon)
    whitened = norm.whitened(_given(running_mean), inverse)
    of_x = norm.scaled_gradient(gradient, inverse, gamma) if mask[0] else None
    return _gradients(tiles, of_x, *norm.parameter_gradients(whitened, gradient, mask[1:]))

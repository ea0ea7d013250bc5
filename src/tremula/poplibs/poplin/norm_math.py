"""Normalisation over any dimensions: statistics, whitening, and their gradients.

`kept` are the dimensions that have statistics of their own; all others are reduced. Sums are float;
statistics and results have the type of the activations.
"""

import math
from collections.abc import Sequence as ListOf

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.popops import Reduction
from tremula.poplibs.popops.expr import Cast, Expr, _1, _2, _3, _4, _5, maximum, rsqrt, square
from tremula.poplibs.registry import PoplibsError

Kept = tuple[int, ...]


def check_norm_operands(op: str, x: Tensor, others: ListOf[Tensor], n_each: int) -> None:
    """Refuse what is no float, and statistics or parameters of the wrong size or type."""
    if x.type not in (FLOAT, HALF):
        raise PoplibsError(
            f"{op} does not work on {x.type}.",
            source=user_source(),
            mend="it works on float and half: cast the operand",
        )
    if x.rank < 2 or x.n_elems == 0:
        raise PoplibsError(
            f"{op} needs activations [batch, channels, …], got shape {list(x.shape)}.",
            source=user_source(),
            mend="give at least two dimensions, none of size 0",
        )
    for other in others:
        if other.n_elems != n_each or other.type is not x.type:
            raise PoplibsError(
                f"{op} of {x.type} {list(x.shape)} needs {n_each} elements of {x.type}, got "
                f"{other.type} {list(other.shape)}.",
                source=user_source(),
                mend="give statistics and parameters of the activations' type and number",
            )


def statistics(
    graph: Graph, x: Tensor, kept: Kept, epsilon: float, sequence: Sequence, name: str,
    *, is_unbiased: bool, is_stable: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mean and 1 / sqrt(variance + epsilon), each flat.

    The stable way takes the mean off before it squares; the other reads the data only once.
    """
    dims, n = _reduced(x, kept)
    if is_unbiased and n == 1:
        raise PoplibsError(
            f"an unbiased variance needs two values or more, but shape {list(x.shape)} has one for "
            "each statistic.",
            source=user_source(),
            mend="use is_unbiased=False, or more data",
        )
    sums = Reduction(x, dims, "ADD", 1 / n, out_type=FLOAT)
    if is_stable:
        (mean,) = popops.reduce_many(graph, [sums], sequence, f"{name}/mean")
        centred = popops.map(
            graph, _wide(_1, x.type) - _2, [x, _beside(mean, x, kept)], sequence, f"{name}/centre"
        )
        power = popops.reduce(
            graph, centred, dims, "SQUARE_ADD", sequence, f"{name}/power", scale=1 / n
        )
        variance = _2
    else:
        squares = Reduction(x, dims, "SQUARE_ADD", 1 / n, out_type=FLOAT)
        mean, power = popops.reduce_many(graph, [sums, squares], sequence, f"{name}/mean")
        variance = maximum(_2 - square(_1), 0.0)
    operands = [mean, power]
    if is_unbiased:
        # A number in the expression would make a codelet for every size of batch.
        correction = graph.add_constant(FLOAT, [1], n / (n - 1), f"{name}/correction", mapping=0)
        operands, variance = [*operands, correction], variance * _3
    deviation = _rounded(rsqrt(variance + epsilon), x.type)
    inv_std_dev = popops.map(graph, deviation, operands, sequence, f"{name}/inv_std_dev")
    if x.type is HALF:
        mean = popops.cast(graph, mean, HALF, sequence, f"{name}/mean")
    return mean.flatten(), inv_std_dev.flatten()


def whiten(
    graph: Graph, x: Tensor, kept: Kept, mean: Tensor, inv_std_dev: Tensor, sequence: Sequence,
    name: str,
) -> Tensor:  # fmt: skip
    """(x - mean) · inv_std_dev."""
    both = [_beside(mean, x, kept), _beside(inv_std_dev, x, kept)]
    return popops.map(graph, (_1 - _2) * _3, [x, *both], sequence, name)


def scale_and_shift(
    graph: Graph, x: Tensor, gamma: Tensor, beta: Tensor, sequence: Sequence, name: str
) -> Tensor:
    """Gamma · x + beta, one of each per channel."""
    both = [_beside(gamma, x, (1,)), _beside(beta, x, (1,))]
    return popops.map(graph, _1 * _2 + _3, [x, *both], sequence, name)


def parameter_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, sequence: Sequence, name: str
) -> tuple[Tensor, Tensor]:
    """Gradients of gamma and beta: sums of gradient · whitened and of gradient per channel."""
    dims, _ = _reduced(whitened, (1,))
    products = popops.mul(graph, whitened, gradient, sequence, name=f"{name}/product")
    both = [Reduction(products, dims, "ADD"), Reduction(gradient, dims, "ADD")]
    of_gamma, of_beta = popops.reduce_many(graph, both, sequence, name)
    return of_gamma, of_beta


def scaled_gradient(
    graph: Graph, gradient: Tensor, gamma: Tensor, sequence: Sequence, name: str
) -> Tensor:
    """The gradient of what gamma multiplied."""
    return popops.mul(graph, gradient, _beside(gamma, gradient, (1,)), sequence, name=name)


def statistics_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, kept: Kept, inv_std_dev: Tensor,
    sequence: Sequence, name: str,
) -> Tensor:  # fmt: skip
    """The gradient of what was whitened: (g - mean(g) - w · mean(g·w)) / deviation."""
    dims, n = _reduced(whitened, kept)
    products = popops.mul(graph, whitened, gradient, sequence, name=f"{name}/product")
    both = [
        Reduction(products, dims, "ADD", -1 / n),
        Reduction(gradient, dims, "ADD", -1 / n),
    ]
    of_variance, of_mean = popops.reduce_many(graph, both, sequence, f"{name}/sums")
    per_group = [_beside(t, whitened, kept) for t in (of_variance, of_mean, inv_std_dev)]
    expr = (_1 + _2 * _3 + _4) * _5
    return popops.map(graph, expr, [gradient, whitened, *per_group], sequence, name)


def _reduced(x: Tensor, kept: Kept) -> tuple[list[int], int]:
    """The dimensions that are summed over, and how many elements that are."""
    dims = [d for d in range(x.rank) if d not in kept]
    return dims, math.prod(x.shape[d] for d in dims)


def _beside(values: Tensor, x: Tensor, kept: Kept) -> Tensor:
    """One value per statistic, shaped to be repeated over the reduced dimensions."""
    return values.reshape([x.shape[d] if d in kept else 1 for d in range(x.rank)])


def _wide(value: Expr, type: Type) -> Expr:
    return Cast(value, FLOAT) if type is HALF else value


def _rounded(value: Expr, type: Type) -> Expr:
    return Cast(value, HALF) if type is HALF else value

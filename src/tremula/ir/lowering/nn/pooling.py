"""Lowerings of pooling and its gradients; fields of one, two and three dimensions."""

from collections.abc import Sequence as ListOf

import numpy as np

from tremula.ir.lowering.nn.resizing import separable
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.nodes import schema_name
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popnn, popops
from tremula.poplibs.popnn import PoolParams

Ints = ListOf[int]


def _each(value: Ints | int, n: int) -> tuple[int, ...]:
    """One number per dimension; a single one is used for all."""
    values = [value] if isinstance(value, int) else list(value)
    return tuple(values * n if len(values) == 1 else values)


def _params(
    kind: str,
    field: Ints,
    out: Ints,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints = (1,),
) -> PoolParams:
    """Windows that give exactly the outputs PyTorch counted, whichever way it rounded."""
    n = len(field)
    kernel, padding, dilation = _each(kernel, n), _each(padding, n), _each(dilation, n)
    stride = _each(stride, n) if stride else kernel
    reach = [
        (o - 1) * s + (k - 1) * d + 1
        for o, s, k, d in zip(out, stride, kernel, dilation, strict=True)
    ]
    upper = tuple(r - low - size for r, low, size in zip(reach, padding, field, strict=True))
    return PoolParams(kind, kernel, stride, padding, upper, dilation)


def _batched(x: Tensor, n_field: int) -> Tensor:
    """[batch, channels, field…]: one sample alone is a batch of one."""
    return x if x.rank == n_field + 2 else x.expand([0])


# -- maxima ----------------------------------------------------------------------------------------


@lowers("max_pool2d_with_indices", "max_pool3d_with_indices", calls="popnn.pool, popnn.pool_places")
def max_pool_with_indices(
    tiles: Tiles, x: Tensor, kernel: Ints, stride: Ints = (), padding: Ints = (0,),
    dilation: Ints = (1,), ceil_mode: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Places are found only if something reads them."""
    del ceil_mode
    n = _n_field(tiles)
    acts, shape = _batched(x, n), list(tiles.result_shape(0))
    params = _params("MAX", acts.shape[2:], shape[-n:], kernel, stride, padding, dilation)
    pooled = popnn.pool(tiles.graph, acts, tiles.sequence, tiles.name, params=params)
    if not tiles.is_read(1):
        return pooled.reshape(shape), None
    name = f"{tiles.name}/places"
    places = popnn.pool_places(tiles.graph, acts, pooled, tiles.sequence, name, params=params)
    return pooled.reshape(shape), places.reshape(shape)


@lowers(
    "max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward",
    calls="popnn.pool_gradient_by_places",
)  # fmt: skip
def max_pool_backward(  # noqa: PLR0917 - as ATen
    tiles: Tiles, gradient: Tensor, x: Tensor, kernel: Ints, stride: Ints, padding: Ints,
    dilation: Ints, _ceil_mode: bool, places: Tensor,
) -> Tensor:  # fmt: skip
    n = _n_field(tiles)
    field, out = x.shape[-n:], gradient.shape[-n:]
    params = _params("MAX", field, out, kernel, stride, padding, dilation)
    result = popnn.pool_gradient_by_places(
        tiles.graph, _batched(gradient, n), _batched(places, n), tiles.sequence, tiles.name,
        params=params, field=tuple(field),
    )  # fmt: skip
    return result.reshape(list(tiles.out_shape))


def _n_field(tiles: Tiles) -> int:
    """2 for aten::max_pool2d…: every name holds its number of dimensions."""
    name = schema_name(tiles.node)
    return next(n for n in (1, 2, 3) if f"{n}d" in name)


# -- averages --------------------------------------------------------------------------------------


@lowers("avg_pool1d", "avg_pool2d", "avg_pool3d", calls="popnn.pool, popops.mul")
def avg_pool(  # noqa: PLR0917 - as ATen
    tiles: Tiles, x: Tensor, kernel: Ints, stride: Ints = (), padding: Ints = (0,),
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    del ceil_mode
    n = _n_field(tiles)
    acts, shape = _batched(x, n), list(tiles.out_shape)
    params = _params("SUM", acts.shape[2:], shape[-n:], kernel, stride, padding)
    shares = _shares(params, acts.shape[2:], shape[-n:], count_include_pad, divisor_override)
    if shares is None:
        params = _as_average(params)
    pooled = popnn.pool(tiles.graph, acts, tiles.sequence, tiles.name, params=params)
    return _scaled(tiles, pooled, shares).reshape(shape)


@lowers("avg_pool2d_backward", "avg_pool3d_backward", calls="popnn.pool_input_gradient, popops.mul")
def avg_pool_backward(  # noqa: PLR0917 - as ATen
    tiles: Tiles, gradient: Tensor, x: Tensor, kernel: Ints, stride: Ints, padding: Ints,
    _ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
) -> Tensor:  # fmt: skip
    n = _n_field(tiles)
    acts, gradient = _batched(x, n), _batched(gradient, n)
    field, out = acts.shape[2:], gradient.shape[2:]
    params = _params("SUM", field, out, kernel, stride, padding)
    shares = _shares(params, field, out, count_include_pad, divisor_override)
    if shares is None:
        params = _as_average(params)
    gradient = _scaled(tiles, gradient, shares)
    result = popnn.pool_input_gradient(
        tiles.graph, acts, gradient, gradient, tiles.sequence, tiles.name, params=params
    )
    return result.reshape(list(tiles.out_shape))


def _as_average(params: PoolParams) -> PoolParams:
    return PoolParams(
        "AVG",
        params.kernel,
        params.stride,
        params.padding_lower,
        params.padding_upper,
        params.dilation,
    )


def _shares(
    params: PoolParams, field: Ints, out: Ints, include_pad: bool, divisor: int | None
) -> np.ndarray | None:
    """The factor of window sums; None if it is 1 / the number of inputs in a window."""
    if divisor is not None:
        return np.full((1,) * len(field), 1 / divisor)
    if not include_pad:
        return None
    shares, is_padded = np.ones(()), False
    for d, (size, n_out) in enumerate(zip(field, out, strict=True)):
        low = params.padding_lower[d]
        start = np.arange(n_out) * params.stride[d] - low
        end = np.minimum(start + params.kernel[d], size + low)
        is_padded |= bool((start < 0).any() or (end > size).any())
        shares = shares[..., None] / (end - start)
    if not is_padded:
        return None
    return shares if np.ptp(shares) > 0 else np.full((1,) * len(field), shares.flat[0])


def _scaled(tiles: Tiles, x: Tensor, shares: np.ndarray | None) -> Tensor:
    if shares is None:
        return x
    return popops.mul(
        tiles.graph, x, tiles.constant(shares, x.type), tiles.sequence, f"{tiles.name}/share"
    )


@lowers("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", calls="popnn.pool, poplin.mat_mul")
def adaptive_avg_pool(tiles: Tiles, x: Tensor, out: Ints) -> Tensor:
    acts = _batched(x, len(out))
    field = acts.shape[2:]
    if any(size % n for size, n in zip(field, out, strict=True)):
        matrices = [_adaptive_matrix(size, n) for size, n in zip(field, out, strict=True)]
        return separable(tiles, acts, matrices).reshape(list(tiles.out_shape))
    kernel = tuple(size // n for size, n in zip(field, out, strict=True))
    params = PoolParams("AVG", kernel, kernel)
    pooled = popnn.pool(tiles.graph, acts, tiles.sequence, tiles.name, params=params)
    return pooled.reshape(list(tiles.out_shape))


@lowers(
    "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward",
    calls="popnn.pool_input_gradient, poplin.mat_mul",
)  # fmt: skip
def adaptive_avg_pool_backward(tiles: Tiles, gradient: Tensor, x: Tensor) -> Tensor:
    n = _n_field(tiles)
    acts, gradient = _batched(x, n), _batched(gradient, n)
    sizes = list(zip(acts.shape[2:], gradient.shape[2:], strict=True))
    if any(size % n for size, n in sizes):
        matrices = [_adaptive_matrix(size, n).T for size, n in sizes]
        return separable(tiles, gradient, matrices).reshape(list(tiles.out_shape))
    kernel = tuple(size // n for size, n in sizes)
    result = popnn.pool_input_gradient(
        tiles.graph, acts, gradient, gradient, tiles.sequence, tiles.name,
        params=PoolParams("AVG", kernel, kernel),
    )  # fmt: skip
    return result.reshape(list(tiles.out_shape))


def _adaptive_matrix(n_in: int, n_out: int) -> np.ndarray:
    """[in, out]: column o averages inputs floor(o·in/out) … ceil((o+1)·in/out)."""
    matrix = np.zeros((n_in, n_out))
    for o in range(n_out):
        begin, end = o * n_in // n_out, -(-(o + 1) * n_in // n_out)
        matrix[begin:end, o] = 1 / (end - begin)
    return matrix

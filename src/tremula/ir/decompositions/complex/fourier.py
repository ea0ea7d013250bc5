"""Fourier transforms: products with matrices of roots of unity, a factor of the length at a time.

A transform of length n = r·m is r-point transforms of places m apart, a turn of every element, then
m-point transforms of neighbours: n·(r + m) multiplications instead of n². Each is one product of
all rows with a constant matrix, which is what tiles are good at; so the factors are large, and a
length up to 64 is one product. A length with a large prime factor is a convolution of a length that
has none (Bluestein).
"""

from collections.abc import Callable
from math import prod, sqrt

import numpy as np
import torch
from torch import Tensor

from tremula.ir.complex_pair import Pair, as_pair
from tremula.ir.decompositions.complex.arithmetic import mul
from tremula.ir.op_table import decomposes_complex

aten = torch.ops.aten

_LARGEST_PRODUCT = 64  # points of one product with a matrix
_LARGEST_PRIME = 256  # a prime factor above it is a convolution
_BY_ROOT, _BY_LENGTH = 1, 2  # how ATen numbers the normalisations; 0: none

# -- ATen's three transforms -----------------------------------------------------------------------


@decomposes_complex(aten._fft_c2c.default)
def fft_c2c(x: Pair, dims: list[int], normalization: int, forward: bool) -> Pair:
    """Along each dimension, products with matrices of roots of unity."""
    for dim in dims:
        x = _along(x, dim, lambda row: _transform(row, forward=forward))
    return _normalised(x, [x.shape[d] for d in dims], normalization)


@decomposes_complex(aten._fft_r2c.default)
def fft_r2c(x: Tensor, dims: list[int], normalization: int, onesided: bool) -> Pair:
    """The last dimension first, of which the second half mirrors the first; then the others."""
    sizes = [x.shape[d] for d in dims]
    *others, last = dims
    n_frequencies = x.shape[last] // 2 + 1 if onesided else x.shape[last]
    result = _along(x, last, lambda row: _transform(row, forward=True))
    result = Pair(
        result.re.narrow(last, 0, n_frequencies), result.im.narrow(last, 0, n_frequencies)
    )
    return _normalised(fft_c2c(result, others, 0, True), sizes, normalization)


@decomposes_complex(aten._fft_c2r.default)
def fft_c2r(x: Pair, dims: list[int], normalization: int, last_dim_size: int) -> Tensor:
    """The other dimensions first; then the last, whose second half is the first one mirrored."""
    *others, last = dims
    x = fft_c2c(x, others, 0, False)
    result = _along(x, last, lambda row: _transform(_mirrored(row, last_dim_size), forward=False))
    sizes = [result.shape[d] for d in dims]
    return _normalised(result, sizes, normalization).re


def _along(x: Pair | Tensor, dim: int, transform: Callable) -> Pair:
    """A transform of the last dimension, of another one."""
    x = x.movedim(dim, -1) if isinstance(x, Tensor) else _moved(x, dim, -1)
    return _moved(transform(x), -1, dim)


def _moved(x: Pair, source: int, to: int) -> Pair:
    return Pair(x.re.movedim(source, to), x.im.movedim(source, to))


def _normalised(x: Pair, sizes: list[int], normalization: int) -> Pair:
    n = prod(sizes)
    if normalization == 0 or n == 1:
        return x
    assert normalization in (_BY_ROOT, _BY_LENGTH), normalization
    factor = 1 / n if normalization == _BY_LENGTH else 1 / sqrt(n)
    return Pair(x.re * factor, x.im * factor)


def _mirrored(x: Pair, n: int) -> Pair:
    """All n places of the transform of something real: place n - k is the conjugate of place k.

    The imaginary parts of what mirrors itself do not count: they give an imaginary result.
    """
    half = n // 2 + 1
    re, im = _fitted(x.re, half), _fitted(x.im, half)
    again = slice(1, n - half + 1)
    return Pair(
        torch.cat([re, re[..., again].flip(-1)], -1), torch.cat([im, -im[..., again].flip(-1)], -1)
    )


def _fitted(x: Tensor, n: int) -> Tensor:
    """The first n places; zeros where there are fewer."""
    has = x.shape[-1]
    return x[..., :n] if has >= n else torch.nn.functional.pad(x, (0, n - has))


# -- one dimension ---------------------------------------------------------------------------------


def _transform(x: Pair | Tensor, *, forward: bool) -> Pair:
    """Of the last dimension; `x` real or complex."""
    n = x.shape[-1]
    sign = -1 if forward else 1
    factors = radices(n)
    if max(factors, default=1) > _LARGEST_PRIME:
        return _by_convolution(as_pair(x), sign)
    return _by_factors(x, factors, sign)


def radices(n: int) -> list[int]:
    """Factors of a length, each at most `_LARGEST_PRODUCT` unless it is a larger prime."""
    result, rest, divisor = [], n, 2
    while rest > 1 and divisor * divisor <= rest:
        while rest % divisor == 0:
            result.append(divisor)
            rest //= divisor
        divisor += 1
    if rest > 1:
        result.append(rest)
    return _joined(result)


def _joined(primes: list[int]) -> list[int]:
    """Primes multiplied into as few factors as fit one product each, of about the same size."""
    n_factors = 1
    while True:
        groups = [1] * n_factors
        for prime in sorted(primes, reverse=True):
            place = min(range(n_factors), key=groups.__getitem__)
            groups[place] *= prime
        if all(g <= _LARGEST_PRODUCT or g in primes for g in groups):
            return sorted((g for g in groups if g > 1), reverse=True) or [1]
        n_factors += 1


def _by_factors(x: Pair | Tensor, factors: list[int], sign: int) -> Pair:
    """The first factor's transforms, turns, the other factors' transforms."""
    first, *others = factors
    if not others:
        return _by_matrix(x, sign)
    n, m = x.shape[-1], x.shape[-1] // first
    # [..., j1, j2] -> [..., j2, j1]: the transform over j1 gives [..., j2, k1].
    columns = _shaped(x, (first, m))
    columns = columns.mT if isinstance(columns, Tensor) else Pair(columns.re.mT, columns.im.mT)
    result = _by_matrix(columns, sign)
    turned = mul(result, _constant(_turns(m, first, n, sign)))
    assert isinstance(turned, Pair), "turns are complex"
    rows = Pair(turned.re.mT, turned.im.mT)  # [..., k1, j2]
    done = _by_factors(rows, others, sign)  # [..., k1, k2], and place k1 + first · k2
    shape = (*x.shape[:-1], n)
    return Pair(done.re.mT.reshape(shape), done.im.mT.reshape(shape))


def _shaped(x: Pair | Tensor, last: tuple[int, ...]) -> Pair | Tensor:
    shape = (*x.shape[:-1], *last)
    if isinstance(x, Tensor):
        return x.reshape(shape)
    return Pair(x.re.reshape(shape), x.im.reshape(shape))


def _by_matrix(x: Pair | Tensor, sign: int) -> Pair:
    """Of the last dimension, one real product: parts beside each other, in and out."""
    n = x.shape[-1]
    if n == 1:
        return as_pair(x)
    roots = _turns(n, n, n, sign)
    matrix = np.concatenate([np.real(roots), np.imag(roots)], 1)
    rows = x if isinstance(x, Tensor) else torch.cat([x.re, x.im], -1)
    if isinstance(x, Pair):
        below = np.concatenate([-np.imag(roots), np.real(roots)], 1)
        matrix = np.concatenate([matrix, below], 0)
    result = torch.matmul(rows, torch.tensor(matrix.tolist(), dtype=rows.dtype))
    return Pair(result[..., :n], result[..., n:])


def _turns(n_rows: int, n_columns: int, n: int, sign: int) -> np.ndarray:
    """exp(± 2πi · row · column / n); reduced first, so that large products lose no digits."""
    places = np.outer(np.arange(n_rows, dtype=np.int64), np.arange(n_columns, dtype=np.int64)) % n
    return np.exp(sign * 2j * np.pi * (places / n))


def _constant(values: np.ndarray, dtype: torch.dtype = torch.float32) -> Pair:
    return Pair(
        *(torch.tensor(part.tolist(), dtype=dtype) for part in (np.real(values), np.imag(values)))
    )


# -- a large prime factor --------------------------------------------------------------------------


def _by_convolution(x: Pair, sign: int) -> Pair:
    """Bluestein's: j·k = (j² + k² - (k - j)²) / 2, so it is a convolution with chirps."""
    n = x.shape[-1]
    length = 1 << (2 * n - 2).bit_length()
    places = np.arange(n, dtype=np.int64)
    chirp = np.exp(sign * 1j * np.pi * (places * places % (2 * n) / n))
    kernel = np.zeros(length, np.complex128)
    kernel[:n] = chirp.conj()
    kernel[length - n + 1 :] = chirp.conj()[1:][::-1]
    turned = mul(x, _constant(chirp))
    assert isinstance(turned, Pair), "chirps are complex"
    padded = Pair(_fitted(turned.re, length), _fitted(turned.im, length))
    factors = radices(length)
    spectrum = mul(_by_factors(padded, factors, -1), _constant(np.fft.fft(kernel) / length))
    assert isinstance(spectrum, Pair), "the kernel is complex"
    matches = _by_factors(spectrum, factors, 1)
    result = mul(Pair(matches.re[..., :n], matches.im[..., :n]), _constant(chirp))
    assert isinstance(result, Pair), "chirps are complex"
    return result

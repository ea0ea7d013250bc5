"""Complex numbers: matrix products, norms, products of elements, comparisons, gradients."""

from collections.abc import Callable

import torch
from torch import Tensor

from tremula.ir.complex_pair import Operand, Pair, as_pair, parts
from tremula.ir.decompositions.complex.arithmetic import add, length, mul
from tremula.ir.op_table import decomposes_complex

aten = torch.ops.aten

# -- matrix products -------------------------------------------------------------------------------


def _product(multiply: Callable, a: Pair | Tensor, b: Pair | Tensor) -> Pair:
    """Four real products, or two if an operand is real."""
    if isinstance(a, Tensor) and isinstance(b, Pair):
        return Pair(multiply(a, b.re), multiply(a, b.im))
    a = as_pair(a)
    if isinstance(b, Tensor):
        return Pair(multiply(a.re, b), multiply(a.im, b))
    re = multiply(a.re, b.re) - multiply(a.im, b.im)
    return Pair(re, multiply(a.re, b.im) + multiply(a.im, b.re))


@decomposes_complex(aten.mm.default, aten.bmm.default)
def mm(a: Pair | Tensor, b: Pair | Tensor) -> Pair:
    """One real product: the parts of a beside each other, of b as [[re, im], [-im, re]]."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return _product(torch.matmul, a, b)
    left = torch.cat([a.re, a.im], -1)
    right = torch.cat([torch.cat([b.re, b.im], -1), torch.cat([-b.im, b.re], -1)], -2)
    result = torch.matmul(left, right)
    n = b.shape[-1]
    return Pair(result[..., :n], result[..., n:])


@decomposes_complex(aten.mv.default)
def mv(a: Pair | Tensor, x: Pair | Tensor) -> Pair:
    """Real products of the parts."""
    return _product(torch.mv, a, x)


@decomposes_complex(aten.dot.default)
def dot(a: Pair | Tensor, b: Pair | Tensor) -> Pair:
    """Real products of the parts."""
    return _product(torch.dot, a, b)


@decomposes_complex(aten.vdot.default)
def vdot(a: Pair | Tensor, b: Pair | Tensor) -> Pair:
    """The first operand conjugated."""
    conjugate = Pair(a.re, -a.im) if isinstance(a, Pair) else a
    return _product(torch.dot, conjugate, b)


@decomposes_complex(aten.addmm.default, aten.baddbmm.default)
def addmm(
    bias: Operand, a: Pair | Tensor, b: Pair | Tensor, *, beta: complex = 1, alpha: complex = 1
) -> Operand:
    """The product, then the bias; a factor of 0 leaves out what it multiplies."""
    result = mul(mm(a, b), alpha) if alpha != 1 else mm(a, b)
    if beta == 0:
        return result
    return add(result, bias if beta == 1 else mul(bias, beta))


@decomposes_complex(aten.addmv.default)
def addmv(
    bias: Operand, a: Pair | Tensor, x: Pair | Tensor, *, beta: complex = 1, alpha: complex = 1
) -> Operand:
    """The product, then the bias; a factor of 0 leaves out what it multiplies."""
    result = mul(mv(a, x), alpha) if alpha != 1 else mv(a, x)
    if beta == 0:
        return result
    return add(result, bias if beta == 1 else mul(bias, beta))


@decomposes_complex(aten.linalg_inv_ex.default)
def inverse(matrix: Pair, *, check_errors: bool = False) -> tuple[Pair, Tensor]:
    """The inverse of the real matrix [[re, -im], [im, re]] has the same form."""
    result, error = aten.linalg_inv_ex.default(_as_real(matrix), check_errors=check_errors)
    n = matrix.shape[-1]
    return Pair(result[..., :n, :n], result[..., n:, :n]), error


def _as_real(matrix: Pair | Tensor) -> Tensor:
    """The real matrix [[re, -im], [im, re]]: products and inverses have its form."""
    matrix = as_pair(matrix)
    rows = [torch.cat([matrix.re, -matrix.im], -1), torch.cat([matrix.im, matrix.re], -1)]
    return torch.cat(rows, -2)


# -- norms and products of elements ----------------------------------------------------------------


@decomposes_complex(aten.linalg_vector_norm.default)
def vector_norm(
    x: Pair, ord: float = 2, dim: list[int] | None = None, keepdim: bool = False,
    *, dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """The norm of the lengths."""
    del dtype
    return torch.linalg.vector_norm(length(x.re, x.im), ord, dim, keepdim)


@decomposes_complex(aten.prod.dim_int)
def prod(x: Pair, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Operand:
    """Halves are multiplied until one is left."""
    del dtype
    re, im = x.re.movedim(dim, 0), x.im.movedim(dim, 0)
    while re.shape[0] > 1:
        n = re.shape[0] // 2
        pair = mul(Pair(re[:n], im[:n]), Pair(re[n : 2 * n], im[n : 2 * n]))
        re, im = (
            torch.cat([part, rest[2 * n :]]) if rest.shape[0] % 2 else part
            for part, rest in zip(parts(pair), (re, im), strict=True)
        )
    if not re.shape[0]:
        re, im = torch.ones_like(re.sum(0, True)), torch.zeros_like(im.sum(0, True))
    if keepdim:
        return Pair(re.movedim(0, dim), im.movedim(0, dim))
    return Pair(re.squeeze(0), im.squeeze(0))


@decomposes_complex(aten.prod.default)
def prod_of_all(x: Pair, *, dtype: torch.dtype | None = None) -> Operand:
    """Halves are multiplied until one is left."""
    return prod(Pair(x.re.reshape(-1), x.im.reshape(-1)), 0, dtype=dtype)


@decomposes_complex(aten.cumprod.default)
def cumprod(x: Pair, dim: int, *, dtype: torch.dtype | None = None) -> Pair:
    """Products with what is 1, 2, 4, … places before, as many times as it takes."""
    del dtype
    re, im = x.re.movedim(dim, 0), x.im.movedim(dim, 0)
    step = 1
    while step < re.shape[0]:
        later = mul(Pair(re[step:], im[step:]), Pair(re[:-step], im[:-step]))
        l_re, l_im = parts(later)
        re, im = torch.cat([re[:step], l_re]), torch.cat([im[:step], l_im])
        step *= 2
    return Pair(re.movedim(0, dim), im.movedim(0, dim))


@decomposes_complex(aten.var.correction, aten.var.default)
def var(
    x: Pair, dim: list[int] | None = None, *, correction: float | None = None,
    keepdim: bool = False,
) -> Tensor:  # fmt: skip
    """The sum of both parts' variances."""
    how = {"dim": dim, "correction": 1 if correction is None else correction, "keepdim": keepdim}
    return torch.var(x.re, **how) + torch.var(x.im, **how)


# -- comparisons -----------------------------------------------------------------------------------


@decomposes_complex(aten.eq.Tensor, aten.eq.Scalar)
def eq(a: Operand, b: Operand) -> Tensor:
    """Both parts are equal."""
    (a_re, a_im), (b_re, b_im) = parts(a), parts(b)
    return _compared(a_re, b_re, torch.eq) & _compared(a_im, b_im, torch.eq)


@decomposes_complex(aten.ne.Tensor, aten.ne.Scalar)
def ne(a: Operand, b: Operand) -> Tensor:
    """A part differs."""
    (a_re, a_im), (b_re, b_im) = parts(a), parts(b)
    return _compared(a_re, b_re, torch.ne) | _compared(a_im, b_im, torch.ne)


def _compared(a: Tensor | float, b: Tensor | float, compare: Callable) -> Tensor:
    return compare(a, b) if isinstance(a, Tensor) else compare(b, a)


@decomposes_complex(aten.isnan.default)
def isnan(x: Pair) -> Tensor:
    """A part is."""
    return torch.isnan(x.re) | torch.isnan(x.im)


@decomposes_complex(aten.isinf.default)
def isinf(x: Pair) -> Tensor:
    """A part is."""
    return torch.isinf(x.re) | torch.isinf(x.im)


@decomposes_complex(aten.isfinite.default)
def isfinite(x: Pair) -> Tensor:
    """Both parts are."""
    return torch.isfinite(x.re) & torch.isfinite(x.im)


@decomposes_complex(aten.logical_not.default)
def logical_not(x: Pair) -> Tensor:
    """Both parts are 0."""
    return (x.re == 0) & (x.im == 0)


@decomposes_complex(aten.any.default, aten.any.dim, aten.any.dims)
def any_(x: Pair, *how: object, **more: object) -> Tensor:
    """A part of any is not 0."""
    return torch.any((x.re != 0) | (x.im != 0), *how, **more)


@decomposes_complex(aten.all.default, aten.all.dim, aten.all.dims)
def all_(x: Pair, *how: object, **more: object) -> Tensor:
    """A part of each is not 0."""
    return torch.all((x.re != 0) | (x.im != 0), *how, **more)


@decomposes_complex(aten.sigmoid_backward.default)
def sigmoid_backward(gradient: Operand, y: Pair) -> Operand:
    """The gradient times the conjugate of y·(1 - y)."""
    slope = mul(y, Pair(1 - y.re, -y.im))
    re, im = parts(slope)
    return mul(gradient, Pair(re, -im))  # pyright: ignore[reportArgumentType]


@decomposes_complex(aten.tanh_backward.default)
def tanh_backward(gradient: Operand, y: Pair) -> Operand:
    """The gradient times the conjugate of 1 - y²."""
    re, im = parts(mul(y, y))
    return mul(gradient, Pair(1 - re, im))  # pyright: ignore[reportArgumentType]

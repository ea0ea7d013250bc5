"""Lowerings of operations on the bits of a float: its neighbours, its mantissa and exponent."""

from tremula.base.types import FLOAT, HALF, INT, SHORT
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops, poputil
from tremula.poplibs.popops.elementwise import expr
from tremula.poplibs.popops.elementwise.expr import Expr, _1, _2, _3

_BITS_OF = {FLOAT: INT, HALF: SHORT}  # a number of the same size
_SIGN_OF = {FLOAT: -(2**31), HALF: -(2**15)}
_BIAS, _FRACTION_BITS = 126, 23  # of a float whose mantissa is 0.5 … 1
_SMALLEST = 2.0**-126  # with all digits of its mantissa
_RAISED = 24  # doublings that give a smaller one all its digits


def _map(tiles: Tiles, formula: Expr, *tensors: Tensor) -> Tensor:
    return popops.map(tiles.graph, formula, list(tensors), tiles.sequence, tiles.name)


@lowers("nextafter", calls="popops.map")
def nextafter(tiles: Tiles, x: Tensor, y: Tensor) -> Tensor:
    """Neighbours of floats are neighbours as whole numbers, away from 0 the next one."""
    type = tiles.out_type
    x, y = (poputil.broadcast_view(tiles.cast(t, type), tiles.out_shape) for t in (x, y))
    whole = tiles.writeable_copy(x).reinterpret(_BITS_OF[type])
    is_inwards = (_1 < _2) ^ (_1 > 0)
    stepped = expr.select(_3 - 1, _3 + 1, is_inwards)
    above, below = (expr.Const(value, _BITS_OF[type]) for value in (1, _SIGN_OF[type] + 1))
    stepped = expr.select(expr.select(above, below, _2 > 0), stepped, _1 == 0)
    beside = _map(tiles, stepped, x, y, whole).reinterpret(type)
    is_number = (_1 == _1) & (_2 == _2)  # noqa: PLR0124 - only NaN differs from itself
    result = expr.select(expr.select(_2, _3, _1 == _2), _1 + _2, is_number)
    return _map(tiles, result, x, y, beside)


@lowers("frexp.Tensor", calls="popops.map")
def frexp(tiles: Tiles, x: Tensor) -> tuple[Tensor, Tensor]:
    """A mantissa of 0.5 … 1 and a power of 2; what has none is its own mantissa."""
    x = tiles.cast(x, FLOAT)
    is_small = abs(_1) < _SMALLEST
    full = _map(tiles, expr.select(_1 * 2.0**_RAISED, _1, is_small), x)
    whole = full.reinterpret(INT)
    has_parts = expr.is_finite(_1) & (_1 != 0)
    power = ((_2 >> _FRACTION_BITS) & 255) - _BIAS
    power = power - expr.select(expr.Const(_RAISED, INT), expr.Const(0, INT), is_small)
    exponent = _map(tiles, expr.select(power, expr.Const(0, INT), has_parts), x, whole)
    mantissa_bits = (_1 & (-(2**31) + 2**_FRACTION_BITS - 1)) | (_BIAS << _FRACTION_BITS)
    mantissa = _map(tiles, mantissa_bits, whole).reinterpret(FLOAT)
    result = _map(tiles, expr.select(_2, _1, has_parts), x, mantissa)
    return tiles.cast(result, tiles.result_type(0)), exponent

"""One formula over tensors and numbers as one vertex per tile: what element-wise operations are."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import fx

from tremula.base.types import BOOL, FLOAT, HALF, Type
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.lowering.types import tile_type
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops.elementwise import map as maps
from tremula.poplibs.popops.elementwise.expr import Cast, Expr, PlaceHolder
from tremula.poplibs.popops.elementwise.fused import fuse
from tremula.poplibs.poputil import is_writeable

Operand = Tensor | float | int | bool
Formula = Callable[..., Expr]
_SMALLEST_HALF, _LARGEST_HALF = 2.0**-14, 65504.0  # normal numbers


def mapped(tiles: Tiles, formula: Formula, *values: Operand, type: Type | None = None) -> Tensor:
    """The formula's value for every element; operands broadcast and are converted to `type`.

    Numbers become constants, so formulas that differ in a number share their vertices. The result
    is converted to the type of the node.
    """
    type = _computing_type(type, values)
    tensors = [_as_tensor(tiles, value, type) for value in values]
    target = _target(tiles, tensors)
    is_in_place = any(t is target for t in tensors)
    order = sorted(tensors, key=lambda t: t is not target) if is_in_place else tensors
    places = [next(i for i, o in enumerate(order) if o is t) for t in tensors]
    expr = formula(*(_converted(PlaceHolder(i + 1), order[i], type) for i in places))
    if fuse(expr, [t.type for t in order]).result != tiles.out_type:
        expr = Cast(expr, tiles.out_type)
    if target is None:
        return maps.map(tiles.graph, expr, order, tiles.sequence, tiles.name)
    if is_in_place:
        maps.map_in_place(tiles.graph, expr, order, tiles.sequence, tiles.name)
    else:
        maps.map_with_output(tiles.graph, expr, order, target, tiles.sequence, tiles.name)
    return target


def common_type(tiles: Tiles) -> Type:
    """The type PyTorch computes in: that to which the node's two operands are promoted."""
    first, second = (_meta(argument) for argument in tiles.node.args[:2])
    return tile_type(torch.result_type(first, second))


def number(value: float | int | bool, type: Type) -> np.ndarray:
    """A number of PyTorch's in a type: whole ones that are too large become the largest."""
    if type == BOOL:
        return np.asarray(bool(value))
    if type.is_floating:
        with np.errstate(over="ignore"):
            return np.asarray(value, np.float64).astype(type.dtype)
    limits = np.iinfo(type.dtype)
    return np.asarray(min(max(int(value), int(limits.min)), int(limits.max)), type.dtype)


def _as_tensor(tiles: Tiles, value: Operand, type: Type | None) -> Tensor:
    if isinstance(value, Tensor):
        return value
    type = type or tiles.out_type
    return tiles.constant(number(value, type), type)


def _computing_type(type: Type | None, values: tuple[Operand, ...]) -> Type | None:
    """With a number that no half can hold, halves are computed as floats and then rounded."""
    if type != HALF:
        return type
    numbers = [abs(float(v)) for v in values if not isinstance(v, Tensor)]
    fits = all(
        n == 0 or not np.isfinite(n) or _SMALLEST_HALF <= n <= _LARGEST_HALF for n in numbers
    )
    return type if fits else FLOAT


def _converted(place: PlaceHolder, tensor: Tensor, type: Type | None) -> Expr:
    return place if type is None or tensor.type == type else Cast(place, type)


def _target(tiles: Tiles, tensors: list[Tensor]) -> Tensor | None:
    """The destination, if the result can be written there while operands are read."""
    target = tiles.destination
    if target is None or (target.shape, target.type) != (tiles.out_shape, tiles.out_type):
        return None
    others = [t for t in tensors if t is not target]
    if any(t.intersects_with(target) for t in others) or not is_writeable(target):
        return None
    return target


def _meta(value: Any) -> Any:  # noqa: ANN401 - a fake tensor or a number
    return value.meta["val"] if isinstance(value, fx.Node) else value


# -- halves are computed as floats and rounded once, when a result is stored -----------------------


def wide(value: Expr, type: Type) -> Expr:
    """An operand in the type it is computed in."""
    return Cast(value, FLOAT) if type is HALF else value


def narrow(value: Expr, type: Type) -> Expr:
    """A computed value in the type it is stored in."""
    return Cast(value, HALF) if type is HALF else value

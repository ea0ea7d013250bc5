"""bfloat16 on tiles: a float with nothing in its last 16 bits, rounded where PyTorch stores one."""

import math
import operator
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map_only

from tremula.base.types import FLOAT, INT
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.nodes import is_view, schema_name
from tremula.ir.passes.half_as_float import MOVES
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.popops.elementwise.expr import Const, _1, select

_KEPT = -(2**16)  # a mask of the bits that a bfloat16 has
_INFINITY, _SIZE = 0x7F800000, 0x7FFFFFFF  # bits of it; a mask of all but the sign
_QUIET = 0x00400000  # a bit that makes a NaN one whatever else is cut off
_EXACT = (torch.bfloat16, torch.bool)
# PyTorch makes a number beside bfloat16 one, too; elsewhere it computes with it as a float.
_NUMBERS_ROUND = frozenset(
    f"aten::{name}" for name in "add sub rsub pow fmod remainder eq ne lt le gt ge".split()
)


def with_rounded_numbers(node: fx.Node, arguments: object) -> Any:  # noqa: ANN401 - as they are
    """The arguments of a call; numbers are bfloat16 where PyTorch makes them so."""
    values = [n.meta["val"] for n in node.all_input_nodes]
    if schema_name(node) not in _NUMBERS_ROUND or not any(map(_is_bfloat16, values)):
        return arguments
    if not all(map(_is_exact, values)):
        return arguments
    return tree_map_only(float, _as_bfloat16, arguments)


def with_rounded(tiles: Tiles, value: object) -> Any:  # noqa: ANN401 - what a lowering gave
    """The results of a lowering; those that are bfloat16 hold values of that type."""
    wanted = tiles.node.meta["val"]
    if isinstance(value, Tensor):
        return _rounded(tiles, value) if _is_rounded(tiles.node, wanted) else value
    if not isinstance(value, tuple | list):
        return value
    pairs = zip(value, wanted, strict=True)
    return tuple(_rounded(tiles, v) if _is_rounded(tiles.node, fake) else v for v, fake in pairs)


def _is_rounded(node: fx.Node, fake: object) -> bool:
    """Whether a result may have become a number that no bfloat16 is."""
    if not _is_bfloat16(fake) or node.target is operator.getitem:
        return False
    if is_view(node.target):
        return False
    operands = [n.meta["val"] for n in node.all_input_nodes]
    is_moved = schema_name(node) in MOVES and all(_is_exact(v) for v in operands)
    numbers = [v for v in (*node.args, *node.kwargs.values()) if isinstance(v, int | float)]
    return not is_moved or not all(_is_number_of_type(v) for v in numbers)


def _is_exact(value: Any) -> bool:  # noqa: ANN401
    values = value if isinstance(value, tuple | list) else [value]
    return all(v.dtype in _EXACT for v in values if v is not None)


def _is_bfloat16(value: object) -> bool:
    return getattr(value, "dtype", None) is torch.bfloat16


def _as_bfloat16(value: float) -> float:
    return float(torch.tensor(float(value)).bfloat16())


def _is_number_of_type(value: float) -> bool:
    return math.isnan(value) or _as_bfloat16(value) == value


def _rounded(tiles: Tiles, x: Tensor) -> Tensor:
    """To the nearest, of two equally near the even one: as a whole number, ties carry upwards."""
    if not x.n_elems:
        return x
    is_odd = (_1 >> 16) & 1
    nearest = (_1 + Const(0x7FFF, INT) + is_odd) & Const(_KEPT, INT)
    nan = (_1 | Const(_QUIET, INT)) & Const(_KEPT, INT)
    is_nan = (_1 & Const(_SIZE, INT)) > Const(_INFINITY, INT)
    bits = [x.reinterpret(INT)]
    result = popops.map(
        tiles.graph, select(nan, nearest, is_nan), bits, tiles.sequence, f"{tiles.name}/bfloat16"
    )
    return result.reinterpret(FLOAT)

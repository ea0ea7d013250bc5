"""Lowerings of softmax, its logarithm, and their gradients, along any dimension."""

from collections.abc import Callable

from tremula.base.types import FLOAT
from tremula.ir.lowering.reductions import last_dim
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popnn


@lowers("_softmax", calls="popnn.softmax")
def softmax(tiles: Tiles, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return _along(tiles, popnn.softmax, dim, tiles.cast(x, FLOAT) if half_to_float else x)


@lowers("_log_softmax", calls="popnn.log_softmax")
def log_softmax(tiles: Tiles, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return _along(tiles, popnn.log_softmax, dim, tiles.cast(x, FLOAT) if half_to_float else x)


@lowers("_softmax_backward_data", calls="popnn.softmax_input_gradient")
def softmax_backward(
    tiles: Tiles, gradient: Tensor, output: Tensor, dim: int, _input_type: object
) -> Tensor:
    return _along(tiles, popnn.softmax_input_gradient, dim, output, gradient)


@lowers("_log_softmax_backward_data", calls="popnn.log_softmax_input_gradient")
def log_softmax_backward(
    tiles: Tiles, gradient: Tensor, output: Tensor, dim: int, _input_type: object
) -> Tensor:
    return _along(tiles, popnn.log_softmax_input_gradient, dim, output, gradient)


def _along(tiles: Tiles, function: Callable, dim: int, *operands: Tensor) -> Tensor:
    """Popnn's softmaxes work on the innermost dimension: another one is rolled there and back."""
    rank = operands[0].rank
    rows = [last_dim(x, dim) for x in operands]
    result = function(tiles.graph, *rows, tiles.sequence, tiles.name)
    result = tiles.cast(result, tiles.out_type)
    return result.dim_roll(rank - 1, dim % rank) if rank else result.reshape([])

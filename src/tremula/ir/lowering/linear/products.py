"""Lowerings of matrix products: mm, bmm, addmm and their kin through poplin's planner."""

from collections.abc import Callable, Iterable
from itertools import pairwise
from math import prod
from typing import Any, Unpack

from torch import fx

from tremula.base.types import FLOAT, HALF, INT, Type
from tremula.ir.lowering.layouts import is_laid_out_for_another, overwriters_layout
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers, prefers_layout
from tremula.poplar.programs import WriteUndef
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs import poplin, popops
from tremula.poplibs.poplin.product.mat_mul import ProductOptions
from tremula.poplibs.poputil import broadcast_view

Shape = tuple[int, ...]
_MULTIPLIED = (FLOAT, HALF)  # types of the matrix unit
# Of all memory, for a copy of a weight laid out differently. Less would fit more models, but
# results of many parts are so fragmented that their readers are slow to build (GPT-2: 71 s instead
# of 13).
_REARRANGED_SHARE = 1 / 4
# Of all memory, for a gradient as large as a table; its parts are brought to one tensor.
_WRITTEN_SHARE = 1 / 16


def product(tiles: Tiles, a: Tensor, b: Tensor, **options: Unpack[ProductOptions]) -> Tensor:
    """[m, k] x [k, n], or [g, m, k] x [g, k, n]: always a new tensor."""
    if a.type not in _MULTIPLIED:
        return _product_of_integers(tiles, a, b)
    multiply = poplin.mat_mul if a.rank == 2 else poplin.mat_mul_grouped
    choices = {**tiles.product_options(), **options}
    return multiply(tiles.graph, a, b, tiles.sequence, tiles.name, **choices)


def _product_of_integers(tiles: Tiles, a: Tensor, b: Tensor) -> Tensor:
    """Element by element, which is exact; converting to float would not be."""
    left, right = tiles.cast(a, INT).expand([a.rank]), tiles.cast(b, INT).expand([b.rank - 2])
    terms = popops.mul(tiles.graph, left, right, tiles.sequence, tiles.name)
    total = popops.reduce(tiles.graph, terms, [a.rank - 1], "ADD", tiles.sequence, tiles.name)
    return tiles.cast(total, a.type)


@lowers("mm", "bmm", calls="poplin.mat_mul, poplin.mat_mul_grouped")
def mm(tiles: Tiles, a: Tensor, b: Tensor) -> Tensor:
    target = overwriters_layout(tiles)
    if target is not None:
        return _written(tiles, a, b, target)
    n_parts = _n_rearranged_parts(tiles, b)
    if n_parts == 1:
        return product(tiles, a, b)
    return concat([product(tiles, a, part) for part in _parts(b, -1, n_parts)], a.rank - 1)


def _written(tiles: Tiles, a: Tensor, b: Tensor, target: Tensor) -> Tensor:
    """The product in a tensor with another layout, part by part: only one part is there twice."""
    n_parts = -(-target.n_elems * target.type.n_bytes // _bytes_of(tiles, _WRITTEN_SHARE))
    dims = (-2, None) if a.shape[-2] >= b.shape[-1] else (None, -1)
    operands = zip(_parts(a, dims[0], n_parts), _parts(b, dims[1], n_parts), strict=True)
    goals = _parts(target, dims[0] or dims[1], n_parts)
    tiles.sequence.add(WriteUndef(target))
    for (left, right), goal in zip(operands, goals, strict=True):
        tiles.copy(product(tiles, left, right), goal)
    return target


def _n_rearranged_parts(tiles: Tiles, b: Tensor) -> int:
    """In how many parts to multiply by a weight that is laid out for another operation.

    It is rearranged for the product, such as a table of embeddings that is also the output layer;
    in parts, only one part of it is on the tiles twice.
    """
    n_bytes, room = b.n_elems * b.type.n_bytes, _bytes_of(tiles, _REARRANGED_SHARE)
    if n_bytes <= room or not is_laid_out_for_another(tiles.node, 1):
        return 1
    return -(-n_bytes // room)


def _bytes_of(tiles: Tiles, share: float) -> int:
    """So much of the memory of all tiles."""
    target = tiles.graph.target
    return int(share * target.n_tiles * target.chip.n_bytes_available_per_tile)


@lowers("mv", calls="poplin.mat_mul")
def mv(tiles: Tiles, a: Tensor, x: Tensor) -> Tensor:
    return product(tiles, a, x.expand([1])).squeeze([1])


@lowers("dot", "vdot", calls="poplin.mat_mul")
def dot(tiles: Tiles, a: Tensor, b: Tensor) -> Tensor:
    return product(tiles, a.expand([0]), b.expand([1])).reshape([])


@lowers("addmm", "baddbmm", calls="poplin.mat_mul, popops.add_in_place")
def addmm(
    tiles: Tiles, bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """The bias is added to the product in place: no second tensor of its size.

    What is multiplied by zero is not read, as in PyTorch: NaN in it does not matter.
    """
    graph, sequence, name = tiles.graph, tiles.sequence, tiles.name
    if alpha == 0:
        return _scaled_bias(tiles, bias, beta)
    result = product(tiles, a, b)
    if alpha != 1:
        factor = tiles.constant(alpha, result.type)
        popops.mul_in_place(graph, result, factor, sequence, f"{name}/alpha")
    if beta == 0:
        return result
    if beta != 1:
        factor = tiles.constant(beta, bias.type)
        bias = popops.mul(graph, bias, factor, sequence, f"{name}/beta")
    popops.add_in_place(graph, result, bias, sequence, f"{name}/bias")
    return result


def _scaled_bias(tiles: Tiles, bias: Tensor, beta: float) -> Tensor:
    shape = tiles.out_shape
    if beta == 0:
        return broadcast_view(tiles.constant(0, tiles.out_type), shape)
    factor = tiles.constant(beta, bias.type)
    name = f"{tiles.name}/beta"
    return broadcast_view(popops.mul(tiles.graph, bias, factor, tiles.sequence, name), shape)


# -- products in serial parts ----------------------------------------------------------------------

# Which dimension of the left and of the right operand each mode cuts; None: it is used whole.
_CUTS = {
    "input_channels": (-2, None),
    "reducing_dim": (-1, -2),
    "output_channels": (None, -1),
}


@lowers("tremula::serialized_mm", calls="poplin.mat_mul, one after the other")
def serialized_mm(
    tiles: Tiles, a: Tensor, b: Tensor, mode: str, factor: int, keep_precision: bool
) -> Tensor:
    """A product in `factor` parts: each needs memory for a while, none at the same time."""
    if b.rank == 2 and a.rank > 2:
        a = a.reshape([prod(a.shape[:-1]), a.shape[-1]])
    cuts = _CUTS.get(mode, (None, None))
    n_parts = factor if mode in _CUTS else 1
    pairs = zip(_parts(a, cuts[0], n_parts), _parts(b, cuts[1], n_parts), strict=True)
    if mode == "reducing_dim" and n_parts > 1:
        result = _summed(tiles, pairs, a.type, keep_precision)
    else:
        matches = [product(tiles, left, right) for left, right in pairs]
        result = matches[0] if len(matches) == 1 else concat(matches, a.rank + (cuts[0] or cuts[1]))
    return result.reshape(list(tiles.out_shape))


def _parts(tensor: Tensor, dim: int | None, n_parts: int) -> list[Tensor]:
    if dim is None:
        return [tensor] * n_parts
    dim += tensor.rank
    return [tensor.slice(*part, dim) for part in pairwise(_begins(tensor.shape[dim], n_parts))]


def _begins(size: int, n_parts: int) -> list[int]:
    """Starts of equal parts; the last part is shorter where the size is not a multiple."""
    step = -(-size // n_parts)
    return [min(i * step, size) for i in range(n_parts + 1)]


def _summed(
    tiles: Tiles, pairs: Iterable[tuple[Tensor, Tensor]], type: Type, keep_precision: bool
) -> Tensor:
    """The sum of partial products, in float if the user wants to keep precision."""
    inner = FLOAT if keep_precision and type == HALF else type
    total: Tensor | None = None
    for left, right in pairs:
        result = product(tiles, left, right, out_type=inner)
        if total is None:
            total = result
        else:
            popops.add_in_place(tiles.graph, total, result, tiles.sequence, f"{tiles.name}/sum")
    assert total is not None, "a product has at least one part"
    return tiles.cast(total, type)


# -- preferred layouts of operands -----------------------------------------------------------------


def _preferred(tiles: Tiles, first: int, is_left: bool) -> Tensor | None:
    shapes, type = (tiles.shape_of(first), tiles.shape_of(first + 1)), tiles.type_of(first)
    if type not in _MULTIPLIED:
        return None
    return _created(tiles, type, shapes, is_left)


def _created(tiles: Tiles, type: Type, shapes: tuple[Shape, Shape], is_left: bool) -> Tensor:
    grouped = len(shapes[0]) == 3
    create: Callable = {
        (False, True): poplin.create_mat_mul_input_lhs,
        (False, False): poplin.create_mat_mul_input_rhs,
        (True, True): poplin.create_mat_mul_grouped_input_lhs,
        (True, False): poplin.create_mat_mul_grouped_input_rhs,
    }[grouped, is_left]
    return create(tiles.graph, type, *shapes, tiles.name, **tiles.product_options())


@prefers_layout("mm", 0)
@prefers_layout("bmm", 0)
def left_operand(tiles: Tiles, _node: fx.Node) -> Tensor | None:
    return _preferred(tiles, 0, is_left=True)


@prefers_layout("mm", 1)
@prefers_layout("bmm", 1)
def right_operand(tiles: Tiles, _node: fx.Node) -> Tensor | None:
    return _preferred(tiles, 0, is_left=False)


@prefers_layout("addmm", 1)
@prefers_layout("baddbmm", 1)
def left_operand_with_bias(tiles: Tiles, _node: fx.Node) -> Tensor | None:
    return _preferred(tiles, 1, is_left=True)


@prefers_layout("addmm", 2)
@prefers_layout("baddbmm", 2)
def right_operand_with_bias(tiles: Tiles, _node: fx.Node) -> Tensor | None:
    return _preferred(tiles, 1, is_left=False)


@prefers_layout("tremula::serialized_mm", 1)
def serialised_operand(tiles: Tiles, node: fx.Node) -> Tensor | None:
    """Each part of the weights as its own product wants it."""
    arguments: Any = node.args
    mode, factor = arguments[2:4]
    a, b = tiles.shape_of(0), tiles.shape_of(1)
    if len(b) != 2 or tiles.type_of(1) not in _MULTIPLIED:
        return None
    n_rows = prod(a[:-1])
    if mode not in ("reducing_dim", "output_channels"):
        n_rows = -(-n_rows // factor) if mode == "input_channels" else n_rows
        return _created(tiles, tiles.type_of(1), ((n_rows, b[0]), b), is_left=False)
    dim = 0 if mode == "reducing_dim" else 1
    parts = []
    for begin, end in pairwise(_begins(b[dim], factor)):
        shape = (end - begin, b[1]) if dim == 0 else (b[0], end - begin)
        shapes = (n_rows, shape[0]), shape
        parts.append(_created(tiles, tiles.type_of(1), shapes, is_left=False))
    return concat(parts, dim) if len(parts) > 1 else parts[0]

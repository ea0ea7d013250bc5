"""Which kernels can be printed in Gluon, and the widths of their tiles."""

import torch
from torch import fx

from tremula.ir.host.graph_kernels import roles
from tremula.ir.host.graph_kernels.roles import Gather, SegmentSum
from tremula.ir.host.graph_kernels.statements import KernelOutput, TileKernel

MIN_WIDTH = 16  # of a tile that the units compute with; narrower ones have a row in each thread
MIN_DOWN = 64  # rows of a product: wgmma has four warps of 16


def width_of(node: fx.Node) -> int:
    """Columns of a tile, padded; one if a row has a single number."""
    features = roles.features_of(node)
    return roles.padded(features[0]) if features else 1


def product_type(kernel: TileKernel) -> torch.dtype | None:
    """The one type of all matrices; None without a product, or with several types."""
    types = {_type_of(product.weight) for _, product in kernel.products}
    return types.pop() if len(types) == 1 else None


def is_printable(kernel: TileKernel, precision: str) -> bool:
    """Whether the units can compute all products and sums, each tile with one feature dimension."""
    dtype = product_type(kernel)
    if dtype is None or (dtype is torch.float32 and precision != "tf32"):
        return False
    are_flat = all(len(roles.features_of(node)) <= 1 for node in _tiles(kernel))
    return are_flat and all(_is_summable(output, dtype) for output in kernel.outputs)


def _is_summable(output: KernelOutput, dtype: torch.dtype) -> bool:
    """Whether the units can do a sum, in the type they multiply, or need not do it."""
    if isinstance(output.role, SegmentSum):
        source = output.role.source
        return width_of(source) < MIN_WIDTH or _type_of(source) is dtype
    if output.outer is not None:
        widest = max(width_of(side) for side in output.outer.rows)
        return widest >= MIN_DOWN and _type_of(output.outer.right) is dtype
    return True


def _tiles(kernel: TileKernel) -> list[fx.Node]:
    """All that has a value for each row, and the tables of gathers."""
    result = []
    for compute in kernel.computes:
        result += [compute.value, *compute.role.rows]
        if isinstance(compute.role, Gather):
            result.append(compute.role.table)
    return result


def widths_of_operands(kernel: TileKernel) -> dict[int, int]:
    """Widths of tiles that are computed from single numbers and only multiplied by matrices.

    Such a tile is computed where the product takes it: {its width: the width of the product}.
    """
    widths: dict[int, set[int]] = {}
    for node, product in kernel.products:
        widths.setdefault(width_of(product.source), set()).add(width_of(node))
    moved = {width_of(node) for node in _tiles(kernel) if _is_moved(node, kernel)}
    produced = {width for each in widths.values() for width in each}
    return {
        width: each.pop()
        for width, each in widths.items()
        if len(each) == 1 and width not in moved | produced
    }


def _is_moved(node: fx.Node, kernel: TileKernel) -> bool:
    """Whether rows of a tile are loaded, stored or gathered."""
    compute = kernel.computed(node)
    if compute is None:
        return True
    return node in kernel.region.results or isinstance(compute.role, Gather)


def _type_of(node: fx.Node) -> torch.dtype:
    return roles.tensor_of(node).dtype

"""Which kernels can be written in Gluon, and what its tiles are to the units of Hopper."""

import torch
from torch import fx

from tremula.ir.host.graph_kernels import facts
from tremula.ir.host.graph_kernels.regions import Region

MIN_WIDTH = 16  # of a tile that the units compute with; others lie a row to a thread
MIN_DOWN = 64  # rows of a product: four warps of 16


def is_writable(region: Region, dtype: torch.dtype, precision: str) -> bool:
    """Whether all tiles are ones that the units multiply, or need not."""
    if dtype is torch.float32 and precision != "tf32":
        return False
    are_flat = all(len(facts.features_of(node)) <= 1 for node in _tiles(region))
    return are_flat and all(_is_summable(node, dtype) for node in region.results)


def type_of_products(region: Region) -> torch.dtype | None:
    """The one type of all matrices; None without a product, or with several types."""
    dots = [facts.dot_of(node) for node in region.nodes if facts.weight_of(node)]
    types = {_type(dot.weight) for dot in dots if dot is not None}
    return types.pop() if len(types) == 1 else None


def _tiles(region: Region) -> list[fx.Node]:
    """All that has a value for each row."""
    row_wise = [n for n in region.nodes if facts.row_operands(n, region.n_rows) is not None]
    read = [x for n in row_wise for x in facts.row_operands(n, region.n_rows) or []]
    tables = [g.table for n in row_wise if (g := facts.gather_of(n)) is not None]
    return [*row_wise, *read, *tables]


def _is_summable(node: fx.Node, dtype: torch.dtype) -> bool:
    """Whether a sum is one the units can do, in the type they multiply, or one they need not do."""
    segment, outer = facts.segment_of(node), facts.outer_of(node)
    if segment is not None:
        return width_of(segment.source) < MIN_WIDTH or _type(segment.source) is dtype
    if outer is not None and facts.outer_size_of(node):
        widest = max(width_of(outer.left), width_of(outer.right))
        return widest >= MIN_DOWN and _type(outer.right) is dtype
    return True


def widths_of_operands(region: Region) -> dict[int, int]:
    """Tiles that are computed from single numbers of rows, and multiplied by matrices of one width.

    They are computed where the product takes them: {their width: that of the product}.
    """
    result: dict[int, set[int]] = {}
    for node in region.nodes:
        dot = facts.dot_of(node) if facts.weight_of(node) else None
        if dot is not None:
            result.setdefault(width_of(dot.rows), set()).add(width_of(node))
    moved = {width_of(n) for n in _tiles(region) if _is_moved(n, region)}
    made = {width for widths in result.values() for width in widths}
    return {
        width: widths.pop()
        for width, widths in result.items()
        if len(widths) == 1 and width not in moved | made
    }


def _is_moved(node: fx.Node, region: Region) -> bool:
    """Whether rows of a tile are read from memory, left there or gathered."""
    is_read = node not in region.nodes
    return is_read or node in region.results or facts.gather_of(node) is not None


def _type(node: fx.Node) -> torch.dtype:
    return facts.tensor_of(node).dtype


def width_of(node: fx.Node) -> int:
    """Columns of a tile; one if a row has a single number."""
    features = facts.features_of(node)
    return facts.padded(features[0]) if features else 1

"""Triton source of a kernel that sums rows segment by segment: a program adds up one segment's.

The rows are read in the order of their segments (`segment_order.py`), each once, and their sum
stays in registers until it is stored. What a segment has beyond its first rows (`LONG`) is left to
further programs, which add to it: in padded batches a few nodes have hundreds of edges.
"""

from collections.abc import Sequence
from math import prod

from torch import fx

from tremula.ir.host.graph_kernels import roles
from tremula.ir.host.graph_kernels.printers.kernel_text import (
    KernelText,
    body,
    indented,
    wide_offsets,
)
from tremula.ir.host.graph_kernels.printers.triton_tiles import HEADER, ReadAhead, TritonTiles
from tremula.ir.host.graph_kernels.roles import SegmentSum
from tremula.ir.host.graph_kernels.statements import KernelOutput, TileKernel


def segment_source(kernel: TileKernel, precision: str, inputs: Sequence[fx.Node]) -> str:
    """The text of a kernel; its first three inputs are what `segment_order` returns.

    A tile has the next few rows of a segment. Which rows these are is read two tiles ahead, and
    numbers of rows, such as what is gathered, one tile: a program would wait for each in turn.
    """
    text = KernelText(list(inputs))
    tiles = TritonTiles(text, precision, ReadAhead("next_row", "follows"))
    outputs = {output.value for output in kernel.outputs}
    for statement in kernel.computes:
        if statement.value not in outputs:
            tiles.compute(statement)
    for output in kernel.outputs:
        _add_up(output, tiles)
    parameters = text.parameters(len(kernel.outputs))
    sizes = "BLOCK: tl.constexpr, LONG: tl.constexpr"
    return HEADER + f"def kernel({parameters}, {sizes}):\n" + body(_lines(kernel, text))


def _lines(kernel: TileKernel, text: KernelText) -> list[str]:
    n = roles.n_rows_of(kernel.outputs[0].value)
    wide = wide_offsets(kernel.n_rows, "tl")

    def row_at(position: str) -> str:
        return f"tl.load(p0 + {position}, mask={position} < end, other=0){wide}"

    def reads(position: str, row: str) -> list[str]:
        """What the tile at a position needs."""
        return [f"next_row = {row}", f"follows = {position} < end", *text.first_reads()]

    return [
        *text.before,
        f"program = tl.program_id(0){wide_offsets(n, 'tl')}",
        f"is_first = program < {n}",
        f"part = tl.maximum(program - {n}, 0) * LONG",
        f"shared = tl.load(p1 + part, mask=program >= {n}, other=0)",
        # The last rows were written last: they may still be in the cache.
        f"segment = tl.where(is_first, {n - 1} - program, shared)",
        f"low = tl.load(p2 + segment, mask=segment < {n}, other=0)",
        f"high = tl.load(p2 + segment + 1, mask=segment < {n}, other=0)",
        "begin = tl.where(is_first, low, tl.maximum(part, low + LONG))",
        "end = tl.minimum(high, tl.where(is_first, low, part) + LONG)",
        "place = begin + tl.arange(0, BLOCK)",
        *reads("place", row_at("place")),
        f"later = {row_at('place + BLOCK')}",
        "for first in range(begin, end, BLOCK):",
        "    place = first + tl.arange(0, BLOCK)",
        "    live = place < end",
        *(f"    {name} = next_{name}" for name in ("row", *text.ahead)),
        *indented(reads("place + BLOCK", "later")),
        f"    later = {row_at('place + 2 * BLOCK')}",
        *indented(text.inside),
        "is_alone = is_first & (high - low <= LONG)",
        "is_shared = (begin < end) & (high - low > LONG)",
        *text.after,
    ]


def _add_up(output: KernelOutput, tiles: TritonTiles) -> None:
    """Sum the rows of a tile; store the sum of a segment, or add it to what other programs have."""
    role, text = output.role, tiles.text
    assert isinstance(role, SegmentSum), "a kernel by segments has no other results"
    sizes = roles.features_of(role.source)
    tile, width = tiles.flat_live_rows(role.source)
    column, inner = tiles.flat_columns(sizes, width)
    total = f"s_{output.name}"
    # Each warp sums different rows: their sums are added once, behind the loop.
    text.before.append(f"{total} = tl.zeros([BLOCK, {width}], tl.float32)")
    text.inside.append(f"{total} += {tile}")
    offsets = f"{output.name} + segment * {prod(sizes)} + {column}[None, :]"
    every = f"({column}[None, :] >= 0){inner}"
    text.after += [
        f"{total} = tl.sum({total}, 0)[None, :]",
        f"tl.store({offsets}, {total}, mask={every} & is_alone)",
        f'tl.atomic_add({offsets}, {total}, mask={every} & is_shared, sem="relaxed")',
    ]

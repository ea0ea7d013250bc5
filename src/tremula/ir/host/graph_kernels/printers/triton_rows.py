"""Triton source of a kernel that goes over tiles of rows, from what it reads to what it writes.

Programs share the tiles among them. A tile is read, everything row-wise is computed in registers,
sums over all rows stay in registers until a program has seen its last tile, and sums into segments
are made per tile: if its rows go to a few neighbouring segments, they are first summed by a product
with a matrix of ones, so that memory sees one addition for each segment of a tile. Rows of sorted
indices do, and so do those of many small graphs in one batch; with others the result is the same
and takes longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import fx

from tremula.ir.host.graph_kernels import roles
from tremula.ir.host.graph_kernels.expressions import TRITON
from tremula.ir.host.graph_kernels.printers.kernel_text import (
    KernelText,
    body,
    indented,
    segment_index,
    wide_offsets,
    wrapped,
)
from tremula.ir.host.graph_kernels.printers.triton_tiles import (
    HEADER,
    ReadAhead,
    TritonTiles,
    along,
)
from tremula.ir.host.graph_kernels.roles import ColumnSum, OuterSum, SegmentSum
from tremula.ir.host.graph_kernels.statements import (
    Compute,
    KernelOutput,
    Store,
    TileKernel,
    in_order,
)

_SIZES = "BLOCK: tl.constexpr, WINDOW: tl.constexpr, HOIST: tl.constexpr"


@dataclass(frozen=True)
class KernelSource:
    """The text of a kernel, and what its parameters are: inputs, then results."""

    text: str
    inputs: tuple[fx.Node, ...]
    is_summed: tuple[bool, ...]  # results that start at zero and are added to
    sums_over_rows: bool  # then few programs see many tiles each
    n_matrices: int  # that rows are multiplied by
    has_outer_sums: bool  # by tensor cores


def triton_source(
    kernel: TileKernel, precision: str, inputs: Sequence[fx.Node] = ()
) -> KernelSource:
    """Print a kernel; `inputs` are its first parameters, those that it finds itself follow."""
    printer = _RowsPrinter(kernel, precision, KernelText(list(inputs)))
    for statement in in_order(kernel):
        if isinstance(statement, Compute):
            printer.tiles.compute(statement)
        elif isinstance(statement, KernelOutput):
            printer.output(statement)
    text = printer.text
    return KernelSource(
        printer.source(),
        tuple(text.inputs),
        tuple(not isinstance(output.role, Store) for output in kernel.outputs),
        bool(text.after),
        len(printer.tiles.matrices),
        any(output.outer is not None for output in kernel.outputs),
    )


@dataclass
class _RowsPrinter:
    """The loop over tiles, and what leaves it."""

    kernel: TileKernel
    precision: str
    text: KernelText
    tiles: TritonTiles = field(init=False)

    def __post_init__(self) -> None:
        ahead = ReadAhead("after", f"after < {self.kernel.n_rows}")
        reads_ahead = self.kernel.has_products
        self.tiles = TritonTiles(self.text, self.precision, ahead if reads_ahead else None)

    def source(self) -> str:
        n, text = self.kernel.n_rows, self.text
        wide = wide_offsets(n, "tl")
        first = f"after = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK){wide}"
        lines = [
            *text.before,
            *([first, *text.first_reads()] if text.ahead else []),
            f"for tile in range(tl.program_id(0), tl.cdiv({n}, BLOCK), tl.num_programs(0)):",
            f"    row = tile * BLOCK + tl.arange(0, BLOCK){wide}",
            f"    live = row < {n}",
            *indented(text.next_reads("after = row + tl.num_programs(0) * BLOCK")),
            *indented(text.inside),
            *text.after,
        ]
        parameters = text.parameters(len(self.kernel.outputs))
        return HEADER + f"def kernel({parameters}, {_SIZES}):\n" + body(lines)

    def output(self, output: KernelOutput) -> None:
        match output.role:
            case Store():
                self._store(output.value, output.name)
            case SegmentSum() as role:
                self._add_to_segments(role, roles.n_rows_of(output.value), output.name)
            case ColumnSum(source):
                tile = self.tiles.live_rows(source)
                size = roles.features_of(source)[0]
                self._add_over_rows(f"tl.sum({tile}, 0)", size, output.name)
            case OuterSum() as role:
                self._add_outer(role, output.name)

    def _store(self, node: fx.Node, result: str) -> None:
        offsets, inner = self.tiles.offsets(node, "row")
        mask = along("live", 0, len(roles.features_of(node)) + 1) + inner
        value = f"{self.tiles.tile(node)}.to({TRITON.type_name(roles.tensor_of(node).dtype)})"
        self.text.inside.append(f"tl.store({result} + {offsets}, {value}, mask={mask})")

    # -- sums over all rows ----------------------------------------------------------------------

    def _add_over_rows(self, tile_sum: str, size: int, result: str) -> None:
        self.text.before.append(f"s_{result} = tl.zeros([{roles.padded(size)}], tl.float32)")
        self.text.inside.append(f"s_{result} += {tile_sum}")
        column = self.tiles.columns(size)
        mask = f", mask={column} < {size}" if roles.padded(size) != size else ""
        self.text.after.append(
            f'tl.atomic_add({result} + {column}, s_{result}{mask}, sem="relaxed")'
        )

    def _add_outer(self, outer: OuterSum, result: str) -> None:
        a, b = self.tiles.live_rows(outer.left), self.tiles.live_rows(outer.right)
        n, m = outer.sizes
        if not outer.is_wide:
            self._add_over_rows(f"tl.sum({a} * {b}, 0)", max(n, m), result)
            return
        # The narrower side is transposed: the wider one is often a product, laid out for it.
        sides, steps = ((a, b), (m, 1)) if n <= m else ((b, a), (1, m))
        down, across = self.tiles.columns(min(n, m)), self.tiles.columns(max(n, m))
        shape = f"[{roles.padded(min(n, m))}, {roles.padded(max(n, m))}]"
        self.text.before.append(f"s_{result} = tl.zeros({shape}, tl.float32)")
        product = self._outer_product(*sides, roles.tensor_of(outer.right).dtype)
        self.text.inside.append(f"s_{result} += {product}")
        offsets = f"{down}[:, None] * {steps[0]} + {across}[None, :] * {steps[1]}"
        mask = f"({down}[:, None] < {min(n, m)}) & ({across}[None, :] < {max(n, m)})"
        self.text.after.append(
            f'tl.atomic_add({result} + {offsets}, s_{result}, mask={mask}, sem="relaxed")'
        )

    def _outer_product(self, transposed: str, other: str, dtype: torch.dtype) -> str:
        a, b = (self.tiles.rounded(side, dtype) for side in (transposed, other))
        if dtype is torch.float32:
            return f'tl.dot(tl.trans({a}), {b}, input_precision="{self.precision}")'
        kind = TRITON.type_name(dtype)
        return f"tl.dot(tl.trans({a}.to({kind})), {b}.to({kind}))"

    # -- sums into segments ----------------------------------------------------------------------

    def _add_to_segments(self, role: SegmentSum, n_segments: int, result: str) -> None:
        sizes = roles.features_of(role.source)
        tile, width = self.tiles.flat_live_rows(role.source)
        goes, low, high = self._segments_of_rows(role, n_segments)
        column, inner = self.tiles.flat_columns(sizes, width)
        row = f"{prod(sizes)} + {column}[None, :]"
        self.text.inside += [
            f"if {high} - {low} < 2 * BLOCK:",
            f"    for first in range({low}, {high} + 1, WINDOW):",
            "        window = first + tl.arange(0, WINDOW)",
            f"        hot = window[:, None] == {goes}[None, :]",
            f"        part = {_window_sum(tile, width, role)}",
            "        touched = tl.max(hot.to(tl.int32), 1) > 0",
            f"        {_added(f'{result} + window[:, None] * {row}', 'part', 'touched', inner)}",
            "else:",
            f"    {_added(f'{result} + {goes}[:, None] * {row}', tile, f'({goes} >= 0)', inner)}",
        ]

    def _segments_of_rows(self, role: SegmentSum, n_segments: int) -> tuple[str, str, str]:
        """The segment of each row, -1 for none, and the first and last segment of the tile."""
        index, text = self.tiles.tile(role.index), self.text
        if role.wraps:
            index = wrapped(index, n_segments, "tl")
        key = ("segments", index, n_segments, role.skipped)
        if key not in text.shared:
            goes = text.line(segment_index(role, index, n_segments, "live", "tl"))
            low = text.line(f"tl.min(tl.where({goes} < 0, {n_segments}, {goes}), 0)")
            high = text.line(f"tl.max({goes}, 0)")
            text.shared[key] = f"{goes} {low} {high}"
        goes, low, high = text.shared[key].split()
        return goes, low, high


def _window_sum(tile: str, width: int, role: SegmentSum) -> str:
    """Rows of a tile summed by segment, in float32 whatever the precision of products."""
    if width < roles.MIN_SIDE:
        return f"tl.sum(tl.where(hot[:, :, None], {tile}[None, :, :], 0.0), 1)"
    dtype = roles.tensor_of(role.source).dtype
    if dtype is torch.float32:
        return f'tl.dot(hot.to(tl.float32), {tile}, input_precision="tf32x3")'
    kind = TRITON.type_name(dtype)
    return f"tl.dot(hot.to({kind}), {tile}.to({kind}))"


def _added(offsets: str, tile: str, rows: str, columns: str) -> str:
    """A tile added to memory, where the masks of rows and columns allow it."""
    return f'tl.atomic_add({offsets}, {tile}, mask={rows}[:, None]{columns}, sem="relaxed")'

"""Tiles of rows in Gluon, where a program says which thread holds which element.

`MatrixUnits` is what the matrix units of Hopper (wgmma) take: element types, layouts and matrices
in shared memory. `RowMajor` are tiles with rows down and features across, as memory has them, and
`FeatureMajor` are the transposed ones; `Lw` and `Sw` are their layouts for tiles of w features.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from tremula.ir.host.graph_kernels import roles
from tremula.ir.host.graph_kernels.expressions import GLUON
from tremula.ir.host.graph_kernels.printers.gluon_shapes import width_of
from tremula.ir.host.graph_kernels.printers.kernel_text import (
    KernelText,
    no_padding,
    segment_index,
    wrapped,
)
from tremula.ir.host.graph_kernels.roles import Gather, OuterSum, RowReduction, SegmentSum

LINE_LAYOUTS = (  # of matrices and vectors that are read or written at once
    "LINES: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [num_warps, 1], [1, 0])",
    "POSTS: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [1, num_warps], [0, 1])",
    "LINE: gl.constexpr = gl.BlockedLayout([1], [32], [num_warps], [0])",
)


@dataclass
class MatrixUnits:
    """Products of one element type, and what they read from shared memory."""

    text: KernelText
    dtype: torch.dtype
    allocated: list[tuple[int, str]] = field(default_factory=list)  # (rows, columns)

    @property
    def n_packed(self) -> int:
        """Elements in a register of an operand."""
        return 4 // self.dtype.itemsize

    def layout(self, warps: str, n_across: str) -> str:
        """The layout of a product's result; one instruction sums over 32 bytes."""
        step = f"[16, {n_across}, {32 // self.dtype.itemsize}]"
        return (
            f"gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta={warps}, instr_shape={step})"
        )

    def rounded(self, tile: str) -> str:
        """Converted to what the units multiply."""
        if self.dtype is torch.float32:
            return f"_rounded({tile})"
        return f"({tile}).to({GLUON.type_name(self.dtype)})"

    def allocate(self, name: str, n_down: int, n_across: str, least_across: int) -> None:
        """Shared memory for a matrix; `least_across` is a lower bound of its columns."""
        kind, bits = GLUON.type_name(self.dtype), 8 * self.dtype.itemsize
        swizzle = min(128, least_across * bits // 8)
        layout = f"gl.NVMMASharedLayout({swizzle}, {bits}, 2)"
        shape = f"[{n_down}, {n_across}]"
        self.text.before.append(f"{name} = gl.allocate_shared_memory({kind}, {shape}, {layout})")
        self.allocated.append((n_down, n_across))

    def n_shared_bytes(self, block: int) -> int:
        """All that is allocated, for tiles of `block` rows."""
        sizes = (n * (block if m == "BLOCK" else int(m)) for n, m in self.allocated)
        return sum(sizes) * self.dtype.itemsize

    def matrix(self, node: fx.Node, is_regrouped: bool = False) -> str:
        """A matrix in shared memory, with the elements that are summed over side by side.

        `is_regrouped`: in the order that `_regrouped` gives the columns of a product's result.
        """
        base, is_transposed = roles.base_of_matrix(node)
        n_in, n_out = roles.tensor_of(node).shape
        down, across = (1, n_in) if is_transposed else (n_out, 1)
        layout = "LINES" if down == 1 else "POSTS"  # neighbouring threads read neighbours
        k, m = roles.padded(n_in), roles.padded(n_out)
        lines = f"gl.arange(0, {m}, gl.SliceLayout(1, {layout}))[:, None]"
        inner = f"gl.arange(0, {k}, gl.SliceLayout(0, {layout}))[None, :]"
        inner = f"_grouped({inner})" if is_regrouped else inner
        masks = [c for c in (no_padding(n_in, inner), no_padding(n_out, lines)) if c]
        mask = f", mask={' & '.join(masks)}, other=0" if masks else ""
        pointer, shared = self.text.pointer(base), self.text.shared
        load = f"gl.load({pointer} + {inner} * {down} + {lines} * {across}{mask})"
        if load not in shared:
            name = shared[load] = f"w{len(shared)}"
            self.allocate(name, m, str(k), k)
            self.text.before.append(f"{name}.store({self.rounded(load)})")
        return shared[load]


@dataclass
class RowMajor:
    """Tiles with rows down and features across.

    In a kernel that repeats its last row, rows beyond it are loaded like others; else they are
    masked.
    """

    text: KernelText
    n_rows: int
    repeats_last_row: bool
    widths: dict[int, None] = field(default_factory=dict)  # of tiles, each with its layout

    feature_axis = 1

    # -- shapes ----------------------------------------------------------------------------------

    def _column(self, width: int) -> str:
        self.widths.setdefault(width)
        return self.text.once("c", f"gl.arange(0, {width}, gl.SliceLayout(0, L{width}))")

    def column(self, width: int) -> str:
        """Numbers of features, along a tile."""
        return f"{self._column(width)}[None, :]"

    def spread(self, numbers: str, width: int) -> str:
        """One number for each row, along a tile."""
        self.widths.setdefault(width)
        return f"gl.convert_layout({numbers}, gl.SliceLayout(1, L{width}))[:, None]"

    def zeros(self, width: int) -> str:
        self.widths.setdefault(width)
        return self.text.once("z", f"gl.zeros([BLOCK, {width}], gl.float32, L{width})")

    def live(self, width: int) -> str:
        """The mask of rows that exist, along a tile."""
        return "live" if width == 1 else f"live{width}[:, None]"

    def broadcast(self, node: fx.Node, width: int) -> str:
        """A tensor that all rows share, along a tile.

        It is loaded for each tile: else threads would hold many of its elements all the time.
        """
        n_elements = roles.tensor_of(node).numel()
        if n_elements == 1:
            return broadcast_number(node, self.text)
        column = self._column(width)
        mask = f", mask={column} < {n_elements}, other=0" if n_elements != width else ""
        load = f"gl.load({self.text.pointer(node)} + {column}{mask}){GLUON.as_float(node)}"
        return f"{self.text.line(load)}[None, :]"

    def offsets(self, node: fx.Node, row: str) -> str:
        column = self._column(width_of(node))
        return f"{row}[:, None] * {roles.features_of(node)[0]} + {column}[None, :]"

    def mask(self, node: fx.Node, rows: str) -> str:
        """Of rows, and of the features that a tensor has."""
        width, size = width_of(node), roles.features_of(node)[0]
        inner = f" & ({self.column(width)} < {size})" if size != width else ""
        return f"{rows}[:, None]{inner}"

    # -- loads and stores ------------------------------------------------------------------------

    def load(self, node: fx.Node) -> str:
        pointer, width = self.text.pointer(node), width_of(node)
        if width == 1:
            load = f"gl.load({pointer} + after, mask=after < {self.n_rows}, other=0)"
            return self.text.read_ahead(node, load + GLUON.as_float(node))
        rows = f"(row{width} >= 0)" if self.repeats_last_row else f"live{width}"
        mask = self.mask(node, rows)
        offsets = self.offsets(node, f"row{width}")
        load = f"gl.load({pointer} + {offsets}, mask={mask}, other=0)"
        return self.text.line(load + GLUON.as_float(node))

    def gather(self, gather: Gather, index: str) -> str:
        """A row outside the table is NaN: the device cannot raise."""
        text, table, n = self.text, gather.table, roles.n_rows_of(gather.table)
        if gather.wraps:
            index = text.line(wrapped(index, n, "gl"))
        if roles.tensor_of(table).numel() < 2**31:
            index = text.line(f"{index}.to(gl.int32)")
        live = "" if self.repeats_last_row else "live & "
        exists = text.line(f"{live}({index} >= 0) & ({index} < {n})")
        other = 'float("nan")' if roles.tensor_of(table).is_floating_point() else "0"
        width, pointer = width_of(table), text.pointer(table)
        if width == 1:
            load = f"gl.load({pointer} + {index}, mask={exists}, other={other})"
            return text.line(load + GLUON.as_float(table))
        self.widths.setdefault(width)
        layout = f"gl.SliceLayout(1, L{width})"
        index = text.line(f"gl.convert_layout({index}, {layout})")
        exists = text.line(f"gl.convert_layout({exists}, {layout})")
        offsets, mask = self.offsets(table, index), self.mask(table, exists)
        load = f"gl.load({pointer} + {offsets}, mask={mask}, other={other})"
        return text.line(load + GLUON.as_float(table))

    def store(self, node: fx.Node, tile: str, result: str) -> None:
        width = width_of(node)
        value = f"{tile}.to({GLUON.type_name(roles.tensor_of(node).dtype)})"
        if width == 1:
            self.text.inside.append(f"gl.store({result} + row, {value}, mask=live)")
            return
        offsets = self.offsets(node, f"row{width}")
        mask = self.mask(node, f"live{width}")
        self.text.inside.append(f"gl.store({result} + {offsets}, {value}, mask={mask})")

    # -- sums ------------------------------------------------------------------------------------

    def live_rows(self, node: fx.Node, tile: str) -> str:
        """A tile that is zero in rows beyond the last."""
        live = self.live(width_of(node))
        return self.text.line_once(("live", tile), lambda: f"gl.where({live}, {tile}, 0.0)")

    def add_numbers(self, tile: str, result: str) -> None:
        """The sum of one number for each row."""
        zero = self.text.once("z", "gl.zeros([BLOCK], gl.float32, ROWS)")
        accumulate(result, zero, tile, self.text)
        self.text.after.append(f'gl.atomic_add({result}, gl.sum(s_{result}, 0), sem="relaxed")')

    def add_narrow(self, tile: str, size: int, result: str) -> None:
        """The sum over rows of a tile that has few columns."""
        if size == 1:
            self.add_numbers(tile, result)
            return
        accumulate(result, self.zeros(roles.padded(size)), tile, self.text)
        add_to_memory(result, size, f"gl.sum(s_{result}, 0)", self.text)

    def add_one_by_one(
        self, role: SegmentSum, n_segments: int, tile: str, index: str, result: str
    ) -> list[str]:
        """Each row is added to its segment: right whatever the order of indices."""
        width = width_of(role.source)
        if role.wraps:
            index = self.text.line(wrapped(index, n_segments, "gl"))
        rows = self.text.line(segment_index(role, index, n_segments, "(live)", "gl"))
        if width == 1:
            return [added(f"{result} + {rows}", tile, f"{rows} >= 0")]
        offsets, mask = self.offsets(role.source, "goal"), self.mask(role.source, "is_one")
        return [
            f"goal = gl.convert_layout({rows}, gl.SliceLayout(1, L{width}))",
            "is_one = goal >= 0",
            added(f"{result} + {offsets}", tile, mask),
        ]


@dataclass
class FeatureMajor:
    """Tiles with features down and rows across."""

    text: KernelText
    widths: dict[int, None] = field(default_factory=dict)

    feature_axis = 0

    def column(self, width: int) -> str:
        """Numbers of features, along a tile."""
        self.widths.setdefault(width)
        numbers = f"gl.arange(0, {width}, gl.SliceLayout(1, S{width}))"
        return self.text.once("c", numbers) + "[:, None]"

    def spread(self, numbers: str, width: int) -> str:
        """One number for each row, along a tile."""
        self.widths.setdefault(width)
        return f"gl.convert_layout({numbers}, gl.SliceLayout(0, S{width}))[None, :]"

    def zeros(self, width: int) -> str:
        self.widths.setdefault(width)
        return self.text.once("z", f"gl.zeros([{width}, BLOCK], gl.float32, S{width})")

    def live(self, width: int) -> str:
        """The mask of rows that exist, along a tile."""
        return f"live_of{width}[None, :]"

    def broadcast(self, node: fx.Node, width: int) -> str:
        """A tensor that all rows share, along a tile."""
        n_elements = roles.tensor_of(node).numel()
        if n_elements == 1:
            return broadcast_number(node, self.text)
        column = self.column(width)
        mask = f", mask={column} < {n_elements}, other=0" if n_elements != width else ""
        return self.text.line(
            f"gl.load({self.text.pointer(node)} + {column}{mask}){GLUON.as_float(node)}"
        )

    def transposed(self, tile: str, width: int) -> str:
        """A row-major tile, brought into this layout through shared memory."""
        self.widths.setdefault(width)
        text = f"gl.convert_layout(gl.permute({tile}, (1, 0)), S{width})"
        return self.text.line_once(("transposed", tile), lambda: text)

    def store(self, node: fx.Node, tile: str, result: str) -> None:
        width, size = width_of(node), roles.features_of(node)[0]
        column = self.column(width)
        inner = f" & ({column} < {size})" if size != width else ""
        value = f"{tile}.to({GLUON.type_name(roles.tensor_of(node).dtype)})"
        offsets = f"{result} + row_of{width}[None, :] * {size} + {column}"
        mask = f"{self.live(width)}{inner}"
        self.text.inside.append(f"gl.store({offsets}, {value}, mask={mask})")


def broadcast_number(node: fx.Node, text: KernelText) -> str:
    """A tensor of one element."""
    return text.once("w", f"gl.load({text.pointer(node)}){GLUON.as_float(node)}")


def reduced(reduction: RowReduction, tile: str, axis: int) -> str:
    """The expression of a reduction over features; padding of the tile is zero."""
    if width_of(reduction.source) == 1:
        return f"gl.abs({tile})" if reduction.kind == "norm" else tile
    text = over_features(f"{tile} * {tile}" if reduction.kind == "norm" else tile, axis)
    if reduction.kind == "norm":
        return f"gl.sqrt({text})"
    size = roles.features_of(reduction.source)[0]
    return f"({text} / {size})" if reduction.kind == "mean" else text


def over_features(text: str, axis: int) -> str:
    """A tile summed in each row."""
    return f"gl.convert_layout(gl.sum({text}, {axis}), ROWS)"


def accumulate(result: str, zero: str, tile: str, text: KernelText) -> None:
    text.before.append(f"s_{result} = {zero}")
    text.inside.append(f"s_{result} += {tile}")


def add_to_memory(result: str, size: int, total: str, text: KernelText) -> None:
    """A sum of rows, after the last tile."""
    column = f"gl.arange(0, {roles.padded(size)}, LINE)"
    total = f"gl.convert_layout({total}, LINE)"
    text.after.append(added(f"{result} + {column}", total, f"{column} < {size}"))


def add_outer_to_memory(
    outer: OuterSum, sides: Sequence[fx.Node], layout: str, result: str, text: KernelText
) -> None:
    """A sum of outer products with one side down and one across; memory has left × right."""
    down, across = sides
    steps = {outer.left: roles.features_of(outer.right)[0], outer.right: 1}
    i = f"gl.arange(0, {width_of(down)}, gl.SliceLayout(1, {layout}))[:, None]"
    j = f"gl.arange(0, {width_of(across)}, gl.SliceLayout(0, {layout}))[None, :]"
    sizes = (roles.features_of(side)[0] for side in sides)
    mask = " & ".join(f"({at} < {size})" for at, size in zip((i, j), sizes, strict=True))
    offsets = f"{result} + {i} * {steps[down]} + {j} * {steps[across]}"
    text.after.append(added(offsets, f"s_{result}", mask))


def added(offsets: str, tile: str, mask: str) -> str:
    return f'gl.atomic_add({offsets}, {tile}, mask={mask}, sem="relaxed")'

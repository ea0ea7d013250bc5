"""Gluon source of a kernel with products, whose tiles are row-major.

Triton chooses layouts by itself, and brings a tile from one to another through shared memory. That
limits a chain of products to tiles of 32 rows, and warps read every matrix from shared memory again
for each tile. Here a program puts its matrices into shared memory once, four warps multiply 64 rows
at a time by them with the matrix units of Hopper (wgmma), and a tile goes from one product to the
next in the registers of the warps that own its rows.

Tiles have one feature dimension, and products are TF32's or of halves. Which form of a kernel is
fastest is measured (`kernels.py`).
"""

import re
from dataclasses import dataclass, field

import torch
from torch import fx

from tremula.ir.host.graph_kernels import roles
from tremula.ir.host.graph_kernels.expressions import (
    GLUON,
    MissingFunctionError,
    element_wise_text,
)
from tremula.ir.host.graph_kernels.printers.gluon_functions import HEADER
from tremula.ir.host.graph_kernels.printers.gluon_shapes import (
    MIN_DOWN,
    MIN_WIDTH,
    is_printable,
    product_type,
    width_of,
    widths_of_operands,
)
from tremula.ir.host.graph_kernels.printers.gluon_tiles import (
    LINE_LAYOUTS,
    MatrixUnits,
    RowMajor,
    accumulate,
    add_outer_to_memory,
    add_to_memory,
    added,
    over_features,
    reduced,
)
from tremula.ir.host.graph_kernels.printers.kernel_text import (
    KernelText,
    body,
    indented,
    segment_index,
    wide_offsets,
    wrapped,
)
from tremula.ir.host.graph_kernels.roles import (
    ColumnSum,
    ElementWise,
    Gather,
    OuterSum,
    Product,
    RowReduction,
    RowView,
    SegmentSum,
)
from tremula.ir.host.graph_kernels.statements import (
    Compute,
    KernelOutput,
    StageSide,
    Statement,
    Store,
    TileKernel,
    outputs_as_soon_as_known,
    waits_for_gathers,
)


def gluon_source(kernel: TileKernel, precision: str, inputs: tuple[fx.Node, ...]) -> str | None:
    """The kernel for parameters in the order of `inputs`, then results; None if it is not one."""
    dtype = product_type(kernel)
    if dtype is None or not is_printable(kernel, precision):
        return None
    text = KernelText(list(inputs))
    printer = _RowMajorPrinter(
        kernel,
        text,
        MatrixUnits(text, dtype),
        RowMajor(text, kernel.n_rows, repeats_last_row=False),
        widths_of_operands(kernel),
    )
    try:
        for statement in printer.statements():
            printer.print(statement)
    except MissingFunctionError:
        return None
    assert text.inputs == list(inputs), "all forms of a kernel read the same tensors"
    return function_of(kernel, text, printer.lines())


def function_of(kernel: TileKernel, text: KernelText, lines: list[str]) -> str:
    """A whole kernel in Gluon; it must write every result."""
    code = body(lines)
    missing = [o.name for o in kernel.outputs if not re.search(rf"\b{o.name}\b", code)]
    assert not missing, f"a kernel writes every result; without {missing}"
    return HEADER.format(parameters=text.parameters(len(kernel.outputs))) + code


@dataclass
class _RowMajorPrinter:
    kernel: TileKernel
    text: KernelText
    units: MatrixUnits
    tiles: RowMajor
    operand_widths: dict[int, int]  # of tiles that are only multiplied: see `widths_of_operands`
    early: list[str] = field(default_factory=list)  # segments of rows, read before anything else

    def statements(self) -> list[Statement]:
        """Gathers are started first, and waited for last."""
        order = sorted(self.kernel.computes, key=lambda x: waits_for_gathers(self.kernel, x))
        outputs = self.kernel.outputs
        return list(outputs_as_soon_as_known(order, outputs, _sides, is_async=False))

    def print(self, statement: Statement) -> None:
        match statement:
            case Compute():
                self.text.tiles[statement.value] = self._computed(statement)
            case StageSide():
                self._stage(statement.side, f"{'de'[statement.index]}_{statement.output.name}")
            case KernelOutput():
                self._output(statement)

    # -- the loop --------------------------------------------------------------------------------

    def lines(self) -> list[str]:
        n, wide = self.kernel.n_rows, wide_offsets(self.kernel.n_rows, "gl")
        first = f"after = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, ROWS){wide}"
        return [
            *self._layouts(),
            *self.text.before,
            "fence_async_shared()",
            *([first, *self.text.first_reads()] if self.text.ahead else []),
            f"for tile in range(gl.program_id(0), gl.cdiv({n}, BLOCK), gl.num_programs(0)):",
            *indented(self._rows_of_tile()),
            *indented(self.text.next_reads("after = row + gl.num_programs(0) * BLOCK")),
            *indented(self.early),
            *indented(self.text.inside),
            *self.text.after,
        ]

    def _rows_of_tile(self) -> list[str]:
        n, wide = self.kernel.n_rows, wide_offsets(self.kernel.n_rows, "gl")
        lines = [f"row = tile * BLOCK + gl.arange(0, BLOCK, ROWS){wide}", f"live = row < {n}"]
        for w in self.tiles.widths:
            rows = f"gl.arange(0, BLOCK, gl.SliceLayout(1, L{w}))"
            lines += [f"row{w} = tile * BLOCK + {rows}{wide}", f"live{w} = row{w} < {n}"]
        return lines

    def _layouts(self) -> list[str]:
        """A row of a tile is in the registers of the warps that multiply it."""
        sums = "version=[2, 0], warps_per_cta=[1, num_warps], instr_shape=[16, 8]"
        widths = sorted(self.tiles.widths, key=lambda width: width in self.operand_widths)
        widest = max(width for width in widths if width not in self.operand_widths)
        n_packed = self.units.n_packed
        return [
            "DOWN: gl.constexpr = BLOCK // 16",
            "ACROSS: gl.constexpr = num_warps // DOWN",
            f"SUMS: gl.constexpr = gl.NVMMADistributedLayout({sums})",
            f"HOT: gl.constexpr = gl.DotOperandLayout(0, SUMS, {n_packed})",
            f"SUMMED: gl.constexpr = gl.DotOperandLayout(1, SUMS, {n_packed})",
            *(f"L{width}: gl.constexpr = {self._layout(width)}" for width in widths),
            f"ROWS: gl.constexpr = gl.SliceLayout(1, L{widest})",
            *LINE_LAYOUTS,
        ]

    def _layout(self, width: int) -> str:
        if width < MIN_WIDTH:
            return f"gl.BlockedLayout([1, {width}], [32, 1], [num_warps, 1], [1, 0])"
        plain = self.units.layout("[DOWN, ACROSS]", f"{width} // ACROSS")
        if width not in self.operand_widths:
            return plain
        # Where warps share rows, each of them would compute all of a row.
        operand = f"gl.DotOperandLayout(0, L{self.operand_widths[width]}, {self.units.n_packed})"
        return f"{operand} if ACROSS == 1 else {plain}"

    # -- values ----------------------------------------------------------------------------------

    def _tile(self, node: fx.Node) -> str:
        """The rows of a value: computed before, or loaded here."""
        if node not in self.text.tiles:
            self.text.tiles[node] = self.tiles.load(node)
        return self.text.tiles[node]

    def _features(self, node: fx.Node) -> str:
        """A tile that is zero in its padding."""
        tile, size = self._tile(node), roles.features_of(node)[0]
        width = roles.padded(size)
        if width == size:
            return tile
        return self.text.line(f"gl.where({self.tiles.column(width)} < {size}, {tile}, 0.0)")

    def _computed(self, statement: Compute) -> str:
        match statement.role:
            case Gather() as role:
                return self.tiles.gather(role, self._tile(role.index))
            case Product() as role:
                return self._product(role)
            case ElementWise() as role:
                return self._element_wise(statement.value, role)
            case RowReduction() as role:
                tile = self._features(role.source)
                return self.text.line(reduced(role, tile, self.tiles.feature_axis))
            case RowView() as role:
                return self._view(statement.value, role.source)

    def _product(self, product: Product) -> str:
        n_out = roles.tensor_of(product.weight).shape[1]
        text = self._wide_product(product) if product.is_wide else self._narrow_product(product)
        if product.bias is not None:
            text += f" + {self.tiles.broadcast(product.bias, roles.padded(n_out))}"
        return self.text.line(text)

    def _narrow_product(self, product: Product) -> str:
        n_in, n_out = roles.tensor_of(product.weight).shape
        a, size = self._tile(product.source), roles.padded(max(n_in, n_out))
        base, _ = roles.base_of_matrix(product.weight)
        w = self.tiles.broadcast(base, size)
        if n_in == 1:
            return f"{self.tiles.spread(a, size)} * {w}" if n_out > 1 else f"{a} * {w}"
        return over_features(f"{self._features(product.source)} * {w}", self.tiles.feature_axis)

    def _wide_product(self, product: Product) -> str:
        n_in, n_out = roles.tensor_of(product.weight).shape
        width = roles.padded(n_out)
        self.tiles.widths.setdefault(width)
        a = self.units.rounded(self._features(product.source))
        is_result = width_of(product.source) not in self.operand_widths
        is_regrouped = self.units.dtype is torch.float32 and is_result
        if is_regrouped:
            a = f"_regrouped({a}, BLOCK, {roles.padded(n_in)})"
        a = f"gl.convert_layout({a}, gl.DotOperandLayout(0, L{width}, {self.units.n_packed}))"
        zero = self.tiles.zeros(width)
        matrix = f"{self.units.matrix(product.weight, is_regrouped)}.permute((1, 0))"
        return f"warpgroup_mma({a}, {matrix}, {zero}, use_acc=False)"

    def _element_wise(self, node: fx.Node, role: ElementWise) -> str:
        width = width_of(node)

        def operand(x: fx.Node) -> str:
            if x not in role.rows:
                return self.tiles.broadcast(x, width)
            tile = self._tile(x)
            return self.tiles.spread(tile, width) if width_of(x) < width else tile

        return self.text.line(element_wise_text(node, GLUON, operand))

    def _view(self, node: fx.Node, source: fx.Node) -> str:
        tile, width = self._tile(source), width_of(node)
        if width_of(source) == width:
            return tile
        return self.text.line(f"{self.tiles.spread(tile, width)} + {self.tiles.zeros(width)}")

    # -- results ---------------------------------------------------------------------------------

    def _live_rows(self, node: fx.Node) -> str:
        return self.tiles.live_rows(node, self._tile(node))

    def _output(self, output: KernelOutput) -> None:
        match output.role:
            case Store(source):
                self.tiles.store(source, self._tile(source), output.name)
            case SegmentSum() as role:
                self._add_to_segments(role, roles.n_rows_of(output.value), output.name)
            case ColumnSum(source):
                tile, size = self._live_rows(source), roles.features_of(source)[0]
                self._add_over_rows(tile, size, output.name)
            case OuterSum() as role if role.is_wide:
                self._add_outer(role, output.name)
            case OuterSum() as role:
                self._add_narrow_outer(role, output.name)

    def _add_over_rows(self, tile: str, size: int, result: str) -> None:
        """Each thread sums its own rows; the threads' sums are added after the last tile."""
        width = roles.padded(size)
        if width < MIN_WIDTH:
            self.tiles.add_narrow(tile, size, result)
            return
        zero, part = (f"_in_threads({x}, BLOCK, {width})" for x in (self.tiles.zeros(width), tile))
        accumulate(result, zero, part, self.text)
        add_to_memory(result, size, f"gl.sum(gl.sum(s_{result}, 0), 0)", self.text)

    def _add_narrow_outer(self, outer: OuterSum, result: str) -> None:
        narrow, wide = outer.narrow_and_wide
        numbers, width = self._live_rows(narrow), width_of(wide)
        numbers = self.tiles.spread(numbers, width) if width > 1 else numbers
        self._add_over_rows(f"{self._live_rows(wide)} * {numbers}", max(outer.sizes), result)

    def _add_outer(self, outer: OuterSum, result: str) -> None:
        down, across = _sides(outer)
        self._stage(down, f"d_{result}")
        self._stage(across, f"e_{result}")
        self.text.inside += [
            "fence_async_shared()",
            f"s_{result} = warpgroup_mma(d_{result}, e_{result}.permute((1, 0)), s_{result})",
        ]
        layout, n_across = f"O_{result}", width_of(across)
        units = self.units.layout("[4, num_warps // 4]", f"{n_across} // (num_warps // 4)")
        zeros = f"gl.zeros([{width_of(down)}, {n_across}], gl.float32, {layout})"
        self.text.before += [f"{layout}: gl.constexpr = {units}", f"s_{result} = {zeros}"]
        add_outer_to_memory(outer, (down, across), layout, result, self.text)

    def _stage(self, side: fx.Node, name: str) -> None:
        """Put a side of an outer product into shared memory, so that no register holds it."""
        if name not in self.text.shared:
            self.text.shared[name] = name
            self.units.allocate(name, width_of(side), "BLOCK", MIN_DOWN)
            value = self.units.rounded(self._live_rows(side))
            self.text.inside.append(f"{name}.permute((1, 0)).store({value})")

    # -- sums into segments ----------------------------------------------------------------------

    def _add_to_segments(self, role: SegmentSum, n_segments: int, result: str) -> None:
        width, tile = width_of(role.source), self._live_rows(role.source)
        if width < MIN_WIDTH:
            self.text.inside += self._add_one_by_one(role, n_segments, tile, result)
            return
        size = roles.features_of(role.source)[0]
        goes, low, high = self._segments_of_rows(role, n_segments)
        column = self.text.once("c", f"gl.arange(0, {width}, gl.SliceLayout(0, SUMS))")
        inner = f" & ({column}[None, :] < {size})" if width != size else ""
        is_float = self.units.dtype is torch.float32
        operand = tile if is_float else self.units.rounded(tile)
        summed = self.text.line(f"gl.convert_layout({operand}, SUMMED)")
        one_by_one = self._add_one_by_one(role, n_segments, tile, result)
        offsets = f"place[:, None] * {size} + {column}[None, :]"
        self.text.inside += [
            f"if {high} - {low} < 2 * BLOCK:",
            f"    for first in range({low}, {high} + 1, WINDOW):",
            "        window = first + gl.arange(0, WINDOW, gl.SliceLayout(1, HOT))",
            f"        hot = (window[:, None] == {goes}[None, :]).to(gl.float32)",
            f"        part = gl.zeros([WINDOW, {width}], gl.float32, SUMS)",
            f"        part = {self._window_sum(summed)}",
            "        touched = gl.convert_layout(gl.max(hot, 1), gl.SliceLayout(1, SUMS)) > 0",
            "        place = first + gl.arange(0, WINDOW, gl.SliceLayout(1, SUMS))",
            f"        {added(f'{result} + {offsets}', 'part', f'touched[:, None]{inner}')}",
            "else:",
            *indented(one_by_one),
        ]

    def _add_one_by_one(
        self, role: SegmentSum, n_segments: int, tile: str, result: str
    ) -> list[str]:
        return self.tiles.add_one_by_one(role, n_segments, tile, self._tile(role.index), result)

    def _window_sum(self, summed: str) -> str:
        if self.units.dtype is torch.float32:
            return f"_into_window(hot, {summed}, part)"
        return f"mma_v2(hot.to({GLUON.type_name(self.units.dtype)}), {summed}, part)"

    def _segments_of_rows(self, role: SegmentSum, n_segments: int) -> tuple[str, str, str]:
        """The segment of each row, and the first and last of the tile.

        Each warp reads all of them, so that their range takes no barrier.
        """
        pointer, text = self.text.pointer(role.index), self.text
        key = ("segments", pointer, n_segments, role.skipped)
        if key not in text.shared:
            number, wide = len(self.early), wide_offsets(self.kernel.n_rows, "gl")
            row = f"tile * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(0, HOT)){wide}"
            live, index = f"k{number} < {self.kernel.n_rows}", f"g{number}"
            load = f"gl.load({pointer} + k{number}, mask={live}, other=-1)"
            self.early += [f"k{number} = {row}", f"{index} = {load}"]
            if role.wraps:
                index = text.line(wrapped(index, n_segments, "gl"))
            goes = text.line(segment_index(role, index, n_segments, f"({live})", "gl"))
            low = text.line(f"gl.min(gl.where({goes} < 0, {n_segments}, {goes}), 0)")
            text.shared[key] = f"{goes} {low} {text.line(f'gl.max({goes}, 0)')}"
        goes, low, high = text.shared[key].split()
        return goes, low, high


def _sides(outer: OuterSum) -> tuple[fx.Node, fx.Node]:
    """What goes down and what across a product: the narrower side down if it is wide enough."""
    narrow, wide = sorted(outer.rows, key=width_of)
    return (narrow, wide) if width_of(narrow) >= MIN_DOWN else (wide, narrow)

"""Gluon source of a kernel that sums outer products, with feature-major tiles.

The gradient of a matrix is a sum of outer products over all rows, so the units of Hopper sum over
rows there, and over features where rows are multiplied by matrices. What they sum over must be
contiguous in shared memory; operands in registers are free of that. A feature-major tile, features
down and rows across, is such an operand for the outer product in the layout that the units left it
in, and only the other side goes through shared memory.

Rows are read and gathered row-major, as memory has them, and are feature-major from the first
product on. Products run while what does not need them is computed: each is started when its
operands are there and waited for where its result is used first.

The last tile reads the last row again in place of those beyond it. Values computed from it are
finite wherever they are in the last row, so of two factors that are summed over rows only one must
be zero beyond the last row; and what is computed from a factor that was set to zero often is zero
itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from tremula.ir.host.graph_kernels import roles
from tremula.ir.host.graph_kernels.expressions import (
    ELEMENT_WISE,
    GLUON,
    MissingFunctionError,
    element_wise_text,
)
from tremula.ir.host.graph_kernels.printers.gluon_rows import function_of
from tremula.ir.host.graph_kernels.printers.gluon_shapes import (
    MIN_DOWN,
    MIN_WIDTH,
    is_printable,
    product_type,
    width_of,
)
from tremula.ir.host.graph_kernels.printers.gluon_tiles import (
    LINE_LAYOUTS,
    FeatureMajor,
    MatrixUnits,
    RowMajor,
    accumulate,
    add_outer_to_memory,
    add_to_memory,
    over_features,
    reduced,
)
from tremula.ir.host.graph_kernels.printers.kernel_text import KernelText, indented, wide_offsets
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
from tremula.ir.nodes import overload_of

# Hopper has 227 KB of shared memory for a block (CUDA C++ Programming Guide, compute capability
# 9.0); 4 KB are left to the compiler, which converts layouts through shared memory.
MAX_SHARED_BYTES = 227 * 1024 - 4096
N_ROWS, N_WARPS = 64, 8  # of a tile, and that work on it: then its sums fit into their registers


def feature_major_source(
    kernel: TileKernel, precision: str, inputs: tuple[fx.Node, ...]
) -> str | None:
    """The kernel for parameters in the order of `inputs`, then results; None if it is not one."""
    dtype = product_type(kernel)
    if dtype is None or not is_printable(kernel, precision) or not _is_suitable(kernel):
        return None
    text = KernelText(list(inputs))
    printer = _FeatureMajorPrinter(
        kernel,
        text,
        MatrixUnits(text, dtype),
        RowMajor(text, kernel.n_rows, repeats_last_row=True),
        FeatureMajor(text),
    )
    try:
        for statement in printer.statements():
            printer.print(statement)
    except MissingFunctionError:
        return None
    printer.wait_for_sums()
    assert text.inputs == list(inputs), "all forms of a kernel read the same tensors"
    fits = printer.units.n_shared_bytes(N_ROWS) <= MAX_SHARED_BYTES
    return function_of(kernel, text, printer.lines()) if fits else None


def _is_suitable(kernel: TileKernel) -> bool:
    """Whether a kernel sums outer products, and neither sums into segments nor is too narrow."""
    has_outer = any(output.outer is not None for output in kernel.outputs)
    has_segments = any(isinstance(output.role, SegmentSum) for output in kernel.outputs)
    is_narrow = any(width_of(node) < MIN_DOWN for node, _ in kernel.products)
    return has_outer and not has_segments and not is_narrow


@dataclass(frozen=True)
class _Started:
    """A product that the units are busy with."""

    name: str
    number: int  # of all products of a tile
    bias: fx.Node | None


@dataclass
class _FeatureMajorPrinter:
    kernel: TileKernel
    text: KernelText
    units: MatrixUnits
    row_major: RowMajor
    feature_major: FeatureMajor
    layouts: dict[fx.Node, RowMajor | FeatureMajor] = field(default_factory=dict)
    ahead_by_column: dict[str, str] = field(default_factory=dict)  # read a tile ahead, for columns
    started: dict[fx.Node, _Started] = field(default_factory=dict)
    n_started: int = 0
    sums: list[str] = field(default_factory=list)  # of outer products
    buffers: dict[object, str] = field(default_factory=dict)  # tiles in shared memory
    repeats: dict[fx.Node, bool] = field(default_factory=dict)  # results of `_repeats_last_row`
    zeros: dict[fx.Node, bool] = field(default_factory=dict)  # results of `_is_zero_in_padding`

    def statements(self) -> list[Statement]:
        """Outer products leave first, so that the units have work."""
        outputs = sorted(self.kernel.outputs, key=lambda output: output.outer is None)
        return list(outputs_as_soon_as_known(self._order(), outputs, self._staged, is_async=True))

    def _order(self) -> list[Compute]:
        """Gathers, then what waits for no product, for the first, for the second, and so on."""
        kernel = self.kernel
        depth: dict[fx.Node, int] = {}  # products before a value
        for each in kernel.computes:
            before = kernel.computed_operands(each)
            depths = (depth[x.value] + (x.product is not None) for x in before)
            depth[each.value] = max(depths, default=0)
        products = [each.value for each in kernel.computes if each.product is not None]
        products.sort(key=depth.__getitem__)
        last: dict[fx.Node, int] = {}  # the last product that a value waits for
        for each in kernel.computes:
            operands = [x.value for x in kernel.computed_operands(each)]
            waits = (products.index(x) if x in products else last[x] for x in operands)
            last[each.value] = max(waits, default=-1)

        def key(each: Compute) -> tuple[bool, int, int]:
            waits = waits_for_gathers(kernel, each)
            return waits > 0, last[each.value], waits

        return sorted(kernel.computes, key=key)

    def print(self, statement: Statement) -> None:
        match statement:
            case Compute():
                self._compute(statement)
            case StageSide():
                self._rows_in_memory(statement.side)
            case KernelOutput():
                self._output(statement)

    def wait_for_sums(self) -> None:
        names = ", ".join(self.sums)
        self.text.inside.append(f"{names} = warpgroup_mma_wait(0, [{names}])")

    # -- the loop --------------------------------------------------------------------------------

    def lines(self) -> list[str]:
        n = self.kernel.n_rows
        return [
            *self._layouts(),
            *self.text.before,
            "fence_async_shared()",
            *self._reads_ahead("gl.program_id(0)"),
            f"for tile in range(gl.program_id(0), gl.cdiv({n}, BLOCK), gl.num_programs(0)):",
            *indented(self._rows_of_tile()),
            *indented(f"{x} = next_{x}" for x in (*self.text.ahead, *self.ahead_by_column)),
            *indented(self._reads_ahead("(tile + gl.num_programs(0))")),
            *indented(self.text.inside),
            *self.text.after,
        ]

    def _layouts(self) -> list[str]:
        """Numbers of rows are with the warps that hold rows, or all with each warp."""
        lanes, each = "[[1], [2], [4], [8], [16]]", N_ROWS // N_WARPS
        few = [[1 << i] if 1 << i < each else [0] for i in range(5)]
        warps = [[each << i] for i in range((N_WARPS - 1).bit_length())]
        linear, size = "gl.DistributedLinearLayout", f"[], [{N_ROWS}]"
        row_major, feature_major = self.row_major.widths, self.feature_major.widths
        return [
            *(f"L{width}: gl.constexpr = {_row_major_layout(width)}" for width in row_major),
            *(f"S{w}: gl.constexpr = {self._product_layout(w, N_ROWS)}" for w in feature_major),
            f"ROWS: gl.constexpr = {linear}([], {few}, {warps}, {size})",
            f"COLUMNS: gl.constexpr = {linear}([[32]], {lanes}, {[[0]] * len(warps)}, {size})",
            *LINE_LAYOUTS,
        ]

    def _product_layout(self, n_down: int, n_across: int) -> str:
        """The layout of a product's result, by as many warps down as it has features for."""
        down = min(N_WARPS, max(n_down // 16, 1))
        across = N_WARPS // down
        return self.units.layout(f"[{down}, {across}]", str(max(n_across // across, 8)))

    def _rows_of_tile(self) -> list[str]:
        lines, wide = [], wide_offsets(self.kernel.n_rows, "gl")
        layouts = [("", "ROWS")]
        layouts += [(f"{w}", f"gl.SliceLayout(1, L{w})") for w in self.row_major.widths]
        layouts += [(f"_of{w}", f"gl.SliceLayout(0, S{w})") for w in self.feature_major.widths]
        for name, layout in layouts:
            lines.append(f"row{name} = tile * BLOCK + gl.arange(0, BLOCK, {layout}){wide}")
            lines.append(f"live{name} = row{name} < {self.kernel.n_rows}")
            lines.append(f"row{name} = {self._up_to_last(f'row{name}')}")
        return lines

    def _up_to_last(self, rows: str) -> str:
        return f"gl.minimum({rows}, {self.kernel.n_rows - 1})"

    def _reads_ahead(self, tile: str) -> list[str]:
        lines, wide = [], wide_offsets(self.kernel.n_rows, "gl")
        for after, layout, loads in (
            ("after", "ROWS", self.text.ahead),
            ("after_across", "COLUMNS", self.ahead_by_column),
        ):
            if loads:
                rows = f"{tile} * BLOCK + gl.arange(0, BLOCK, {layout}){wide}"
                lines.append(f"{after} = {self._up_to_last(rows)}")
            lines += [f"next_{name} = {load}" for name, load in loads.items()]
        return lines

    # -- layouts of tiles ------------------------------------------------------------------------

    def _is_feature_major(self, node: fx.Node) -> bool:
        return self._layout_of(node) is self.feature_major

    def _layout_of(self, node: fx.Node) -> RowMajor | FeatureMajor:
        """A tile is feature-major if it is computed from numbers of rows alone, or by a product.

        Tiles of a few columns are row-major, with a row in each thread.
        """
        if node not in self.layouts:
            compute = self.kernel.computed(node)
            is_feature_major = (
                compute is not None
                and not isinstance(compute.role, Gather)
                and width_of(node) >= MIN_WIDTH
                and self._becomes_feature_major(compute)
            )
            self.layouts[node] = self.feature_major if is_feature_major else self.row_major
        return self.layouts[node]

    def _becomes_feature_major(self, compute: Compute) -> bool:
        tiles = [x for x in compute.role.rows if width_of(x) > 1]
        is_product = compute.product is not None
        return is_product or not tiles or any(self._is_feature_major(x) for x in tiles)

    def _plain_layout(self, width: int) -> RowMajor | FeatureMajor:
        """Of a tile that is computed from numbers of rows alone."""
        return self.feature_major if width >= MIN_WIDTH else self.row_major

    def _feature_major_tile(self, node: fx.Node) -> str:
        tile = self._tile(node)
        if self._is_feature_major(node):
            return tile
        return self.feature_major.transposed(tile, width_of(node))

    def _spread(self, node: fx.Node, width: int, layout: RowMajor | FeatureMajor) -> str:
        """One number for each row, along a tile."""
        is_feature_major = layout is self.feature_major
        numbers = self._numbers_by_column(node) if is_feature_major else self._tile(node)
        return layout.spread(numbers, width)

    def _numbers_by_column(self, node: fx.Node) -> str:
        """Inputs are read again, for columns: to exchange them, warps would need a barrier."""
        compute = self.kernel.computed(node)
        while compute is not None and roles.is_view_of_rows(node):
            node = node.all_input_nodes[0]
            compute = self.kernel.computed(node)
        if compute is not None:
            return self._tile(node)
        shared, key = self.text.shared, ("by column", node)
        if key not in shared:
            name = shared[key] = f"b{len(self.ahead_by_column)}"
            load = f"gl.load({self.text.pointer(node)} + after_across){GLUON.as_float(node)}"
            self.ahead_by_column[name] = load
        return shared[key]

    # -- values ----------------------------------------------------------------------------------

    def _tile(self, node: fx.Node) -> str:
        """The rows of a value: computed, waited for, or loaded here."""
        started, tiles = self.started.pop(node, None), self.text.tiles
        if started is not None:
            text = f"warpgroup_mma_wait({self.n_started - started.number}, [{started.name}])"
            if started.bias is not None:
                text += f" + {self.feature_major.broadcast(started.bias, width_of(node))}"
            tiles[node] = self.text.line(text)
        elif node not in tiles:
            tiles[node] = self.row_major.load(node)
        return tiles[node]

    def _without_padding(self, tile: str, node: fx.Node) -> str:
        """A tile that is zero beyond its last feature, where it may hold anything."""
        size = roles.features_of(node)[0]
        width = roles.padded(size)
        if width == size:
            return tile
        return f"gl.where({self._layout_of(node).column(width)} < {size}, {tile}, 0.0)"

    def _features(self, node: fx.Node) -> str:
        return self._without_padding(self._tile(node), node)

    def _compute(self, statement: Compute) -> None:
        node, product = statement.value, statement.product
        if product is not None:
            self._start_product(node, product)
            return
        match statement.role:
            case Gather() as role:
                name = self.row_major.gather(role, self._tile(role.index))
            case Product() as role:
                name = self._narrow_product(role)
            case ElementWise() as role:
                name = self.text.line(self._element_wise(node, role))
            case RowReduction() as role:
                axis = self._layout_of(role.source).feature_axis
                name = self.text.line(reduced(role, self._features(role.source), axis))
            case RowView() as role:
                name = self._view(node, role.source)
        self.text.tiles[node] = name

    def _start_product(self, node: fx.Node, product: Product) -> None:
        operand, width = self._features_in_memory(product.source), width_of(node)
        matrix, zero = self.units.matrix(product.weight), self.feature_major.zeros(width)
        self.text.inside.append("fence_async_shared()")
        operands = f"{matrix}, {operand}.permute((1, 0)), {zero}, use_acc=False"
        self.n_started += 1
        name = self.text.line(f"warpgroup_mma({operands}, is_async=True)")
        self.started[node] = _Started(name, self.n_started, product.bias)

    def _narrow_product(self, product: Product) -> str:
        n_in, n_out = roles.tensor_of(product.weight).shape
        width = roles.padded(max(n_in, n_out))
        base, _ = roles.base_of_matrix(product.weight)
        layout = self._layout_of(product.source) if n_in > 1 else self._plain_layout(width)
        w = layout.broadcast(base, width)
        if n_in > 1:
            tile = f"{self._features(product.source)} * {w}"
            text = over_features(tile, layout.feature_axis)
        elif n_out > 1:
            text = f"{self._spread(product.source, width, layout)} * {w}"
        else:
            text = f"{self._tile(product.source)} * {w}"
        if product.bias is not None:
            width = roles.padded(n_out)
            text += f" + {self._plain_layout(width).broadcast(product.bias, width)}"
        return self.text.line(text)

    def _element_wise(self, node: fx.Node, role: ElementWise) -> str:
        width, layout = width_of(node), self._layout_of(node)

        def operand(x: fx.Node) -> str:
            if width == 1 and x in role.rows:
                return self._tile(x)
            if x not in role.rows:
                return layout.broadcast(x, width)
            if width_of(x) < width:
                return self._spread(x, width, layout)
            is_feature_major = layout is self.feature_major
            return self._feature_major_tile(x) if is_feature_major else self._tile(x)

        return element_wise_text(node, GLUON, operand)

    def _view(self, node: fx.Node, source: fx.Node) -> str:
        width = width_of(node)
        if width_of(source) == width:
            return self._tile(source)
        layout = self._layout_of(node)
        zeros = layout.zeros(width)
        return self.text.line(f"{self._spread(source, width, layout)} + {zeros}")

    # -- tiles in shared memory ------------------------------------------------------------------

    def _features_in_memory(self, node: fx.Node) -> str:
        """A tile in shared memory for a product with a matrix: features are contiguous."""
        key, width = ("features", node), width_of(node)
        if key not in self.buffers:
            name = self.buffers[key] = f"f{len(self.buffers)}"
            self.units.allocate(name, N_ROWS, str(width), width)
            is_feature_major = self._is_feature_major(node)
            tile = self._tile(node) if is_feature_major else self._live_rows(node)
            value = self.units.rounded(self._without_padding(tile, node))
            view = ".permute((1, 0))" if is_feature_major else ""
            self.text.inside.append(f"{name}{view}.store({value})")
        return self.buffers[key]

    def _rows_in_memory(self, node: fx.Node) -> str:
        """A tile in shared memory for an outer product: rows are contiguous, regrouped."""
        key, width = ("rows", node), width_of(node)
        if key not in self.buffers:
            name = self.buffers[key] = f"e{len(self.buffers)}"
            self.units.allocate(name, width, str(N_ROWS), N_ROWS)
            is_finite = self._repeats_last_row(node)
            tile = self._feature_major_tile(node) if is_finite else self._live_columns(node)
            value = self._regrouped(self.units.rounded(tile), width)
            self.text.inside.append(f"{name}.store({value})")
        return self.buffers[key]

    def _regrouped(self, tile: str, width: int) -> str:
        """Rows in the order in which the units leave them."""
        is_float = self.units.dtype is torch.float32
        return f"_regrouped({tile}, {width}, BLOCK)" if is_float else tile

    # -- rows beyond the last --------------------------------------------------------------------

    def _live_rows(self, node: fx.Node) -> str:
        """A row-major tile that is zero in rows beyond the last."""
        return self.row_major.live_rows(node, self._tile(node))

    def _live_columns(self, node: fx.Node) -> str:
        """A feature-major tile that is zero in rows beyond the last; numbers as they are."""
        width = width_of(node)
        if width == 1:
            return self._live_rows(node)
        tile = self._feature_major_tile(node)
        if self._is_zero_in_padding(node):
            return tile
        live = self.feature_major.live(width)
        return self.text.line_once(("live", tile), lambda: f"gl.where({live}, {tile}, 0.0)")

    def _repeats_last_row(self, node: fx.Node) -> bool:
        """Whether rows beyond the last equal the last: nothing it depends on was set to zero."""
        if node not in self.repeats:
            compute = self.kernel.computed(node)
            product = compute.product if compute is not None else None
            is_cleared = product is not None and not self._is_feature_major(product.source)
            operands = self.kernel.computed_operands(compute) if compute is not None else []
            repeats = all(self._repeats_last_row(x.value) for x in operands)
            self.repeats[node] = not is_cleared and repeats
        return self.repeats[node]

    def _is_zero_in_padding(self, node: fx.Node) -> bool:
        """Whether a value is zero in rows beyond the last, since an operand was set to zero."""
        if node not in self.zeros:
            compute = self.kernel.computed(node)
            product = compute.product if compute is not None else None
            if compute is None:
                self.zeros[node] = False
            elif product is not None:
                source = product.source
                is_cleared = not self._is_feature_major(source) or self._is_zero_in_padding(source)
                self.zeros[node] = is_cleared and product.bias is None
            else:
                self.zeros[node] = self._preserves_zero(compute)
        return self.zeros[node]

    def _preserves_zero(self, compute: Compute) -> bool:
        """Whether zero operands make a value zero, and its other operands are finite."""
        rows = compute.role.rows
        are_finite = all(self._is_zero_in_padding(x) or self._repeats_last_row(x) for x in rows)
        return are_finite and any(self._is_zero_in_padding(x) for x in _zero_operands(compute))

    # -- results ---------------------------------------------------------------------------------

    def _output(self, output: KernelOutput) -> None:
        match output.role:
            case Store(source):
                self._layout_of(source).store(source, self._tile(source), output.name)
            case ColumnSum(source):
                is_feature_major = self._is_feature_major(source)
                tile = self._live_columns(source) if is_feature_major else self._live_rows(source)
                self._add_over_rows(tile, source, output.name)
            case OuterSum() as role if role.is_wide:
                self._add_outer(role, output.name)
            case OuterSum() as role:
                self._add_narrow_outer(role, output.name)
            case SegmentSum():
                raise AssertionError("feature-major kernels do not sum into segments")

    def _add_over_rows(self, tile: str, node: fx.Node, result: str) -> None:
        """Each thread sums its own rows; the threads' sums are added after the last tile."""
        size, width = roles.features_of(node)[0], width_of(node)
        if width < MIN_WIDTH:
            self.row_major.add_narrow(tile, size, result)
            return
        is_feature_major = self._is_feature_major(node)
        zero = self._layout_of(node).zeros(width)
        if is_feature_major:
            parts = [f"_across_threads({x}, {width}, BLOCK)" for x in (zero, tile)]
        else:
            parts = [f"_down_threads({x}, {N_WARPS}, BLOCK, {width})" for x in (zero, tile)]
        accumulate(result, parts[0], parts[1], self.text)
        row_axis = 1 if is_feature_major else 0
        add_to_memory(result, size, f"gl.sum(s_{result}, {row_axis})", self.text)

    def _add_narrow_outer(self, outer: OuterSum, result: str) -> None:
        narrow, wide = outer.narrow_and_wide
        layout, width = self._layout_of(wide), width_of(wide)
        numbers = self._spread(narrow, width, layout) if width > 1 else self._tile(narrow)
        product = f"{self._tile(wide)} * {numbers}"
        live = layout.live(width)
        self._add_over_rows(f"gl.where({live}, {product}, 0.0)", wide, result)

    def _add_outer(self, outer: OuterSum, result: str) -> None:
        down, across = self._sides(outer)
        layout, total = f"O_{result}", f"s_{result}"
        side = self._rows_in_memory(across)
        operand = f"gl.DotOperandLayout(0, {layout}, {self.units.n_packed})"
        first = self.text.line(f"gl.convert_layout({self._side_in_registers(down)}, {operand})")
        self.text.inside.append("fence_async_shared()")
        operands = f"{first}, {side}.permute((1, 0)), {total}"
        self.text.inside.append(f"{total} = warpgroup_mma({operands}, is_async=True)")
        self.n_started += 1
        self.sums.append(total)
        n, m = width_of(down), width_of(across)
        self.text.before += [
            f"{layout}: gl.constexpr = {self._product_layout(n, m)}",
            f"{total} = gl.zeros([{n}, {m}], gl.float32, {layout})",
        ]
        add_outer_to_memory(outer, (down, across), layout, result, self.text)

    def _side_in_registers(self, node: fx.Node) -> str:
        """The side of an outer product that the units read from registers."""
        width, buffer = width_of(node), self.buffers.get(("features", node))
        if not self._is_feature_major(node) and buffer is not None:
            # Shared memory has it in the layout that the units take.
            self.feature_major.widths.setdefault(width)
            return self._regrouped(f"{buffer}.permute((1, 0)).load(S{width})", width)
        return self._regrouped(self.units.rounded(self._live_columns(node)), width)

    def _staged(self, outer: OuterSum) -> Sequence[fx.Node]:
        return self._sides(outer)[1:]

    def _sides(self, outer: OuterSum) -> tuple[fx.Node, fx.Node]:
        """What is read from registers and what from shared memory.

        A row-major tile may be in shared memory already, for a product: it is loaded from there.
        """

        def key(node: fx.Node) -> tuple[bool, int, bool]:
            width = width_of(node)
            return width >= MIN_DOWN, width, not self._is_feature_major(node)

        across, down = sorted(outer.rows, key=key)
        return down, across


def _row_major_layout(width: int) -> str:
    """A warp has rows side by side, and a thread four numbers of each."""
    if width < MIN_WIDTH:
        return f"gl.BlockedLayout([1, {width}], [32, 1], [{N_WARPS}, 1], [1, 0])"
    n_across = min(width // 4, 32)
    down = N_ROWS // N_WARPS * n_across // 32
    threads = f"[{32 // n_across}, {n_across}]"
    return f"gl.BlockedLayout([{max(down, 1)}, 4], {threads}, [{N_WARPS}, 1], [1, 0])"


def _zero_operands(compute: Compute) -> list[fx.Node]:
    """Operands of which one that is zero makes the value zero, if all are finite."""
    node = compute.value
    if isinstance(compute.role, ElementWise):
        positions = ELEMENT_WISE[overload_of(node)].zero_from
        candidates = [node.args[position] for position in positions]
    elif roles.is_view_of_rows(node):
        candidates = [node.args[0]]
    else:
        candidates = []
    return [x for x in compute.role.rows if x in candidates]

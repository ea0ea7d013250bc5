"""Kernels that sum outer products, in Gluon, with tiles that stand: rows across, features down.

The gradient of a matrix is a sum of outer products over all rows, so the units of Hopper sum over
rows there, and over features where rows are multiplied by matrices. What they sum over must lie
side by side in shared memory; operands in registers are free of that. A tile that stands, features
down and rows across, is such an operand for the outer product as the units left it, and only the
other side goes through shared memory.

Rows are read and gathered lying, as memory has them, and stand from the first product on. Products
run while what does not need them is computed: each is started when its operands are there and
waited for where its result is used first.

The last tile reads the last row again in place of those beyond it. What is computed from that is a
number wherever it is one in the last row, so of two factors that are summed over rows only one must
be made nought there; and what is computed from a factor that was made nought often is so itself.
"""

from dataclasses import dataclass, field

import torch
from torch import fx

from tremula.ir.host.graph_kernels import facts
from tremula.ir.host.graph_kernels.expressions import TRITON_TYPES
from tremula.ir.host.graph_kernels.gluon import GluonWriter, added, as_written
from tremula.ir.host.graph_kernels.gluon_facts import (
    MIN_DOWN,
    MIN_WIDTH,
    is_writable,
    type_of_products,
    width_of,
)
from tremula.ir.host.graph_kernels.regions import Region
from tremula.ir.host.graph_kernels.source import as_float

aten = torch.ops.aten
# Nought where their first operand is, if the others are numbers.
_KEEP_NOUGHT = {
    aten.neg.default,
    aten.mul.Scalar,
    aten.div.Scalar,
    aten.softplus_backward.default,
    aten.sigmoid_backward.default,
    aten.tanh_backward.default,
    aten.threshold_backward.default,
    aten.silu_backward.default,
    aten.leaky_relu_backward.default,
}
_MOST_SHARED = 232448 - 4096  # bytes a program of Hopper's has, less what the compiler may take
N_ROWS, N_WARPS = 64, 8  # of a tile, and that work on it: then its sums fit their registers


def standing_source(region: Region, precision: str, inputs: tuple[fx.Node, ...]) -> str | None:
    """The kernel for parameters in the order of `inputs`, then results; None if it is not one."""
    dtype = type_of_products(region)
    if dtype is None or not is_writable(region, dtype, precision):
        return None
    outers = [node for node in region.results if facts.outer_size_of(node)]
    products = [node for node in region.nodes if facts.weight_of(node)]
    has_segments = any(facts.segment_of(node) is not None for node in region.results)
    is_narrow = any(width_of(node) < MIN_DOWN for node in products)
    if not outers or has_segments or is_narrow:
        return None
    writer = _StandingWriter(region, precision, True, list(inputs), product_type=dtype)
    text = as_written(writer)
    return text if writer.n_bytes <= _MOST_SHARED else None


@dataclass(frozen=True)
class _Started:
    """A product that the units are busy with."""

    name: str
    number: int  # of all products of a tile
    dot: facts.Dot


@dataclass
class _StandingWriter(GluonWriter):
    standing: dict[int, None] = field(default_factory=dict)  # widths of tiles that stand
    forms: dict[fx.Node, bool] = field(default_factory=dict)  # whether a tile stands
    across: dict[str, str] = field(default_factory=dict)  # numbers read a tile ahead, for columns
    started: dict[fx.Node, _Started] = field(default_factory=dict)
    n_products: int = 0
    n_bytes: int = 0  # of shared memory
    sums: list[str] = field(default_factory=list)  # of outer products
    buffers: dict[object, str] = field(default_factory=dict)  # tiles in shared memory
    repeated: dict[fx.Node, bool] = field(default_factory=dict)  # known of `_repeats`
    faded: dict[fx.Node, bool] = field(default_factory=dict)  # known of `_fades`

    def write(self) -> None:
        super().write()
        names = ", ".join(self.sums)
        self.inside.append(f"{names} = warpgroup_mma_wait(0, [{names}])")

    def _results(self) -> list[fx.Node]:
        """Outer products first, so that the units have work."""
        return sorted(self.region.results, key=lambda node: not facts.outer_size_of(node))

    def _order(self) -> list[fx.Node]:
        """Gathers, then what waits for no product, for the first, for the second, and so on."""
        nodes = self._in_order()
        depth: dict[fx.Node, int] = {}  # products before a value
        for node in nodes:
            own = [depth[x] + bool(facts.weight_of(x)) for x in self._before(node)]
            depth[node] = max(own, default=0)
        products = sorted((n for n in nodes if facts.weight_of(n)), key=depth.__getitem__)
        last: dict[fx.Node, int] = {}  # the last product that a value waits for
        for node in nodes:
            result = [products.index(x) if x in products else last[x] for x in self._before(node)]
            last[node] = max(result, default=-1)
        return sorted(
            nodes, key=lambda node: (self._waits(node) > 0, last[node], self._waits(node))
        )

    def _before(self, node: fx.Node) -> list[fx.Node]:
        return [x for x in self._row_operands(node) if x in self.region.nodes]

    def _put_sides(self, pending: list[fx.Node]) -> None:
        """Sides of outer products as soon as they are known, so that no register holds them."""
        for result in pending:
            outer = facts.outer_of(result) if facts.outer_size_of(result) else None
            across = self._sides(outer)[1] if outer is not None else None
            if across is not None and across in self.names:
                self._summed_rows(across)

    # -- layouts -----------------------------------------------------------------------------------

    def _layouts(self) -> list[str]:
        """Numbers of rows lie with the warps that hold rows, or all with each warp."""
        lanes, each = "[[1], [2], [4], [8], [16]]", N_ROWS // N_WARPS
        few = [[1 << i] if 1 << i < each else [0] for i in range(5)]
        warps = [[each << i] for i in range((N_WARPS - 1).bit_length())]
        linear, size = "gl.DistributedLinearLayout", f"[], [{N_ROWS}]"
        return [
            *(f"L{width}: gl.constexpr = {self._lying(width)}" for width in self.widths),
            *(f"S{w}: gl.constexpr = {self._product_layout(w, N_ROWS)}" for w in self.standing),
            f"ROWS: gl.constexpr = {linear}([], {few}, {warps}, {size})",
            f"COLUMNS: gl.constexpr = {linear}([[32]], {lanes}, {[[0]] * len(warps)}, {size})",
            *self.line_layouts(),
        ]

    def _lying(self, width: int) -> str:
        """A warp has rows side by side, and a thread four numbers of each."""
        if width < MIN_WIDTH:
            return f"gl.BlockedLayout([1, {width}], [32, 1], [{N_WARPS}, 1], [1, 0])"
        n_across = min(width // 4, 32)
        down = N_ROWS // N_WARPS * n_across // 32
        threads = f"[{32 // n_across}, {n_across}]"
        return f"gl.BlockedLayout([{max(down, 1)}, 4], {threads}, [{N_WARPS}, 1], [1, 0])"

    def _product_layout(self, n_down: int, n_across: int) -> str:
        """How the units leave a product, by as many warps down as it has features for."""
        down = min(N_WARPS, max(n_down // 16, 1))
        across = N_WARPS // down
        return self.units_layout(f"[{down}, {across}]", str(max(n_across // across, 8)))

    def _tops(self) -> list[str]:
        lines = []
        places = [("", "ROWS")]
        places += [(f"{w}", f"gl.SliceLayout(1, L{w})") for w in self.widths]
        places += [(f"_of{w}", f"gl.SliceLayout(0, S{w})") for w in self.standing]
        for name, layout in places:
            lines.append(f"row{name} = tile * BLOCK + gl.arange(0, BLOCK, {layout}){self._wide()}")
            lines.append(f"live{name} = row{name} < {self.region.n_rows}")
            lines.append(f"row{name} = {self._up_to_last(f'row{name}')}")
        return [*lines, *self._next_ahead()]

    def _up_to_last(self, rows: str) -> str:
        return f"gl.minimum({rows}, {self.region.n_rows - 1})"

    def _first_ahead(self) -> list[str]:
        """Numbers of rows of the first tile."""
        return self._reads_ahead("gl.program_id(0)")

    def _next_ahead(self) -> list[str]:
        result = [f"{name} = next_{name}" for name in (*self.ahead, *self.across)]
        return [*result, *self._reads_ahead("(tile + gl.num_programs(0))")]

    def _reads_ahead(self, tile: str) -> list[str]:
        lines = []
        for after, layout, read in (
            ("after", "ROWS", self.ahead),
            ("after_across", "COLUMNS", self.across),
        ):
            if read:
                rows = f"{tile} * BLOCK + gl.arange(0, BLOCK, {layout}){self._wide()}"
                lines.append(f"{after} = {self._up_to_last(rows)}")
            lines += [f"next_{name} = {text}" for name, text in read.items()]
        return lines

    # -- forms -------------------------------------------------------------------------------------

    def stands(self, node: fx.Node) -> bool:
        """Whether a tile does: if it is computed from numbers of rows alone, or by a product.

        Tiles of a few columns lie, a row to a thread.
        """
        if node not in self.forms:
            operands = [x for x in self._row_operands(node) if width_of(x) > 1]
            is_computed = node in self.region.nodes and facts.gather_of(node) is None
            has_standing = not operands or any(self.stands(x) for x in operands)
            is_made_so = facts.weight_of(node) > 0 or has_standing
            self.forms[node] = is_computed and is_made_so and width_of(node) >= MIN_WIDTH
        return self.forms[node]

    def _row_operands(self, node: fx.Node) -> list[fx.Node]:
        return facts.row_operands(node, self.region.n_rows) or []

    def column_of(self, width: int, stands: bool) -> str:
        """Numbers of features along a tile."""
        if not stands:
            return f"{self.column(width)}[None, :]"
        self.standing.setdefault(width)
        return self.once("c", f"gl.arange(0, {width}, gl.SliceLayout(1, S{width}))") + "[:, None]"

    def _tile(self, node: fx.Node, stands: bool) -> str:
        """A tile in a form; one that lies is brought to stand through shared memory."""
        name, width = self.rows(node), width_of(node)
        if self.stands(node) or not stands:
            return name
        key = ("standing", name)
        if key not in self.shared:
            self.standing.setdefault(width)
            turned = f"gl.convert_layout(gl.permute({name}, (1, 0)), S{width})"
            self.shared[key] = self.line(turned)
        return self.shared[key]

    def _numbers(self, node: fx.Node, width: int, stands: bool) -> str:
        """One number for each row beside a tile."""
        if not stands:
            return self._spread_rows(self.rows(node), width)
        self.standing.setdefault(width)
        return f"gl.convert_layout({self._across(node)}, gl.SliceLayout(0, S{width}))[None, :]"

    def _across(self, node: fx.Node) -> str:
        """What is read is read once more for columns: warps would have to meet to exchange it."""
        while node in self.region.nodes and facts.is_view_of_rows(node):
            node = node.all_input_nodes[0]
        if node in self.region.nodes:
            return self.rows(node)
        key = ("across", node)
        if key not in self.shared:
            name = self.shared[key] = f"b{len(self.across)}"
            self.across[name] = f"gl.load({self.pointer(node)} + after_across){as_float(node)}"
        return self.shared[key]

    def beside_of(self, node: fx.Node, width: int, stands: bool) -> str:
        """A tensor that all rows see, beside a tile."""
        n_elements = facts.tensor_of(node).numel()
        if n_elements == 1 or not stands:
            return self.beside(node, width)
        column = self.column_of(width, stands)
        mask = f", mask={column} < {n_elements}, other=0" if n_elements != width else ""
        return self.line(f"gl.load({self.pointer(node)} + {column}{mask}){as_float(node)}")

    # -- computing ---------------------------------------------------------------------------------

    def _in_table(self, index: str, n: int) -> str:
        return f"({index} >= 0) & ({index} < {n})"

    def _readable(self, width: int) -> str:
        """All: beyond the last there is the last again."""
        return f"(row{width} >= 0)"

    def rows(self, node: fx.Node) -> str:
        started = self.started.pop(node, None)
        if started is not None:
            n_later = self.n_products - started.number
            text = f"warpgroup_mma_wait({n_later}, [{started.name}])"
            if started.dot.bias is not None:
                text += f" + {self.beside_of(started.dot.bias, width_of(node), True)}"
            self.names[node] = self.line(text)
        return super().rows(node)

    def compute(self, node: fx.Node) -> None:
        dot = facts.dot_of(node) if facts.weight_of(node) else None
        if dot is None:
            super().compute(node)
            return
        operand, width = self._summed_features(dot.rows), width_of(node)
        matrix, zero = self.matrix(dot.weight), self._zeros_of(width)
        self.inside.append("fence_async_shared()")
        name = self._start(f"{matrix}, {operand}.permute((1, 0)), {zero}, use_acc=False")
        self.started[node] = _Started(name, self.n_products, dot)

    def _start(self, operands: str, name: str = "") -> str:
        text = f"warpgroup_mma({operands}, is_async=True)"
        self.n_products += 1
        if not name:
            return self.line(text)
        self.inside.append(f"{name} = {text}")
        return name

    def _zeros_of(self, width: int) -> str:
        self.standing.setdefault(width)
        return self.once("z", f"gl.zeros([{width}, BLOCK], gl.float32, S{width})")

    def _allocated(self, name: str, down: int, across: str, least: int) -> str:
        self.n_bytes += down * int(across) * self.product_type.itemsize
        return super()._allocated(name, down, across, least)

    def _summed_features(self, node: fx.Node) -> str:
        """A tile in shared memory for a product with a matrix: features side by side."""
        width = width_of(node)
        if ("features", node) not in self.buffers:
            name = self.buffers["features", node] = f"f{len(self.buffers)}"
            self.before.append(self._allocated(name, N_ROWS, str(width), width))
            n_features, stands = facts.features_of(node)[0], self.stands(node)
            tile = self.rows(node) if stands else self._alive(node)
            value = self._cut(self._without(tile, n_features, stands))
            view = ".permute((1, 0))" if stands else ""
            self.inside.append(f"{name}{view}.store({value})")
        return self.buffers["features", node]

    def _summed_rows(self, node: fx.Node) -> str:
        """The same for an outer product: rows side by side, in the order the units leave them."""
        width = width_of(node)
        if ("rows", node) not in self.buffers:
            name = self.buffers["rows", node] = f"e{len(self.buffers)}"
            self.before.append(self._allocated(name, width, str(N_ROWS), N_ROWS))
            repeats = self._repeats(node)
            tile = self._tile(node, stands=True) if repeats else self._alive_of(node, stands=True)
            value = self._regrouped(self._cut(tile), width)
            self.inside.append(f"{name}.store({value})")
        return self.buffers["rows", node]

    def _regrouped(self, tile: str, width: int) -> str:
        is_float = self.product_type is torch.float32
        return f"_regrouped({tile}, {width}, BLOCK)" if is_float else tile

    def _without(self, tile: str, n_features: int, stands: bool) -> str:
        """Columns beyond the last hold anything: they must not enter a sum."""
        width = facts.padded(n_features)
        if width == n_features:
            return tile
        return f"gl.where({self.column_of(width, stands)} < {n_features}, {tile}, 0.0)"

    def _narrow_product(self, dot: facts.Dot, n_in: int, n_out: int) -> str:
        size = facts.padded(max(n_in, n_out))
        base, _ = facts.base_of_matrix(dot.weight)
        stands = self.stands(dot.rows) if n_in > 1 else size >= MIN_WIDTH
        w = self.beside_of(base, size, stands)
        if n_in == 1:
            is_tile = n_out > 1
            a = self._numbers(dot.rows, size, stands) if is_tile else self.rows(dot.rows)
            return f"{a} * {w}"
        return self._over_features(f"{self._features(dot.rows)} * {w}", dot.rows)

    def _product(self, dot: facts.Dot) -> str:
        n_in, n_out = facts.tensor_of(dot.weight).shape
        text = self._narrow_product(dot, n_in, n_out)
        if dot.bias is not None:
            width = facts.padded(n_out)
            text += f" + {self.beside_of(dot.bias, width, width >= MIN_WIDTH)}"
        return self.line(text)

    def _features(self, node: fx.Node) -> str:
        return self._without(self.rows(node), facts.features_of(node)[0], self.stands(node))

    def _over_features(self, text: str, node: fx.Node) -> str:
        return f"gl.convert_layout(gl.sum({text}, {0 if self.stands(node) else 1}), ROWS)"

    def _operand(self, argument: fx.Node, node: fx.Node, rows: list[fx.Node]) -> str:
        width, stands = width_of(node), self.stands(node)
        if width == 1 and argument in rows:
            return self.rows(argument)
        if argument not in rows:
            return self.beside_of(argument, width, stands)
        if width_of(argument) < width:
            return self._numbers(argument, width, stands)
        return self._tile(argument, stands)

    def _viewed(self, node: fx.Node) -> str:
        source = node.all_input_nodes[0]
        width = width_of(node)
        if width_of(source) == width:
            return self.rows(source)
        stands = self.stands(node)
        zeros = self._zeros_of(width) if stands else self._zeros(width)
        return self.line(f"{self._numbers(source, width, stands)} + {zeros}")

    # -- leaving -----------------------------------------------------------------------------------

    def _is_done(self, result: fx.Node) -> bool:
        return result not in self.started and super()._is_done(result)

    def _store(self, node: fx.Node, result: str) -> None:
        width = width_of(node)
        if width == 1 or not self.stands(node):
            super()._store(node, result)
            return
        size, column = facts.features_of(node)[0], self.column_of(width, True)
        inner = f" & ({column} < {size})" if size != width else ""
        value = f"{self.rows(node)}.to({TRITON_TYPES[facts.tensor_of(node).dtype]})"
        place = f"{result} + row_of{width}[None, :] * {size} + {column}"
        self.inside.append(f"gl.store({place}, {value}, mask=live_of{width}[None, :]{inner})")

    def _alive_of(self, node: fx.Node, stands: bool) -> str:
        """A tile whose rows beyond the last are nought."""
        if not stands or width_of(node) == 1:
            return self._alive(node)
        name, width = self._tile(node, stands), width_of(node)
        if self._fades(node):
            return name
        key = ("alive", name)
        if key not in self.shared:
            self.shared[key] = self.line(f"gl.where(live_of{width}[None, :], {name}, 0.0)")
        return self.shared[key]

    def _repeats(self, node: fx.Node) -> bool:
        """Whether rows beyond the last hold what the last does: nothing before was cleared."""
        if node not in self.repeated:
            dot = facts.dot_of(node) if facts.weight_of(node) else None
            is_cleared = dot is not None and not self.stands(dot.rows)
            before = self._before(node) if node in self.region.nodes else []
            self.repeated[node] = not is_cleared and all(self._repeats(x) for x in before)
        return self.repeated[node]

    def _fades(self, node: fx.Node) -> bool:
        """Whether a value is nought in rows beyond the last, since an operand was made so."""
        if node not in self.faded:
            dot = facts.dot_of(node) if facts.weight_of(node) else None
            if node not in self.region.nodes:
                self.faded[node] = False
            elif dot is not None:
                is_cleared = not self.stands(dot.rows) or self._fades(dot.rows)
                self.faded[node] = is_cleared and dot.bias is None
            else:
                self.faded[node] = self._keeps_nought(node)
        return self.faded[node]

    def _keeps_nought(self, node: fx.Node) -> bool:
        operands = self._row_operands(node)
        if node.target is aten.mul.Tensor:
            noughts = operands
        elif node.target in _KEEP_NOUGHT or facts.is_view_of_rows(node):
            noughts = [x for x in operands if x is node.args[0]]
        else:
            return False
        are_numbers = all(self._fades(x) or self._repeats(x) for x in operands)
        return are_numbers and any(self._fades(x) for x in noughts)

    def _add_columns(self, source: fx.Node, result: str) -> None:
        size, stands = facts.features_of(source)[0], self.stands(source)
        self._add_tile(self._alive_of(source, stands), size, stands, result)

    def _add_tile(self, text: str, size: int, stands: bool, result: str) -> None:
        """Each thread sums its own rows; they meet after the last tile."""
        width = facts.padded(size)
        if width < MIN_WIDTH:
            self._add_over_rows(text, size, result)
            return
        if stands:
            zero, summed, axis = self._zeros_of(width), f"_across_threads({{}}, {width}, BLOCK)", 1
        else:
            zero = self._zeros(width)
            summed, axis = f"_down_threads({{}}, {N_WARPS}, BLOCK, {width})", 0
        self.before.append(f"s_{result} = {summed.format(zero)}")
        self.inside.append(f"s_{result} += {summed.format(text)}")
        column = f"gl.arange(0, {width}, LINE)"
        total = f"gl.convert_layout(gl.sum(s_{result}, {axis}), LINE)"
        self.after.append(added(f"{result} + {column}", total, f"{column} < {size}"))

    def _add_outer(self, outer: facts.Outer, result: str) -> None:
        n, m = facts.features_of(outer.left)[0], facts.features_of(outer.right)[0]
        if min(n, m) == 1:
            wide, narrow = (outer.left, outer.right) if n > m else (outer.right, outer.left)
            stands, width = self.stands(wide), width_of(wide)
            live = f"live_of{width}[None, :]" if stands else f"live{width}[:, None]"
            text = f"{self.rows(wide)} * {self._numbers(narrow, width, stands)}"
            self._add_tile(f"gl.where({live}, {text}, 0.0)", max(n, m), stands, result)
            return
        down, across = self._sides(outer)
        layout = f"O_{result}"
        side = self._summed_rows(across)
        operand = f"gl.DotOperandLayout(0, {layout}, {self.n_beside()})"
        first = self.line(f"gl.convert_layout({self._in_registers(down)}, {operand})")
        self.inside.append("fence_async_shared()")
        self._start(f"{first}, {side}.permute((1, 0)), s_{result}", f"s_{result}")
        self.sums.append(f"s_{result}")
        sizes = width_of(down), width_of(across)
        self.before += [
            f"{layout}: gl.constexpr = {self._product_layout(*sizes)}",
            f"s_{result} = gl.zeros([{sizes[0]}, {sizes[1]}], gl.float32, {layout})",
        ]
        self.leave_outer(outer, (down, across), layout, result)

    def _in_registers(self, node: fx.Node) -> str:
        """The side of an outer product that the units read from registers."""
        width = width_of(node)
        if not self.stands(node) and ("features", node) in self.buffers:
            # It lies in shared memory, as the units take it.
            self.standing.setdefault(width)
            held = f"{self.buffers['features', node]}.permute((1, 0)).load(S{width})"
            return self._regrouped(held, width)
        return self._regrouped(self._cut(self._alive_of(node, stands=True)), width)

    def _sides(self, outer: facts.Outer) -> tuple[fx.Node, fx.Node]:
        """What is read from registers and what from shared memory.

        A tile that lies may be in shared memory already, for a product; so it is loaded from there.
        """

        def is_second(node: fx.Node) -> tuple[bool, int, bool]:
            width = width_of(node)
            return width >= MIN_DOWN, width, not self.stands(node)

        across, down = sorted((outer.left, outer.right), key=is_second)
        return down, across

"""The same kernels with products in Gluon, where it is said which thread holds what.

Triton chooses layouts by itself, and brings a tile from one to another through shared memory. That
binds a chain of products: it fits in tiles of 32 rows at most, and warps read every matrix from
shared memory again for each. Here a program puts its matrices into shared memory once, four warps
multiply 64 rows at a time by them with the matrix units of Hopper (wgmma), and a tile goes from one
product to the next in the registers of the warps that own its rows.

Tiles have one feature dimension, and products are TF32's or of halves. Whether this is faster is
measured with the other ways to cut a kernel.
"""

import re
from dataclasses import dataclass, field

import torch
from torch import fx

from tremula.ir.host.graph_kernels import facts
from tremula.ir.host.graph_kernels.expressions import TRITON_TYPES
from tremula.ir.host.graph_kernels.gluon_facts import (
    MIN_DOWN,
    MIN_WIDTH,
    is_writable,
    type_of_products,
    width_of,
    widths_of_operands,
)
from tremula.ir.host.graph_kernels.gluon_header import HEADER
from tremula.ir.host.graph_kernels.regions import Region
from tremula.ir.host.graph_kernels.source import Writer, as_float

_OWN = {  # where Gluon has none, or a slower one
    "gl.sigmoid(": "_sigmoid(",
    "gl.exp(": "_exp(",
    "gl.PropagateNan": "tl.PropagateNan",
}


def gluon_source(region: Region, precision: str, inputs: tuple[fx.Node, ...]) -> str | None:
    """The kernel for parameters in the order of `inputs`, then results; None if it is not one."""
    dtype = type_of_products(region)
    if dtype is None or not is_writable(region, dtype, precision):
        return None
    return as_written(GluonWriter(region, precision, True, list(inputs), product_type=dtype))


def as_written(writer: "GluonWriter") -> str | None:
    """The text of a kernel; None if it takes functions that Gluon has not."""
    inputs = list(writer.inputs)
    writer.write()
    text = writer.text()
    assert writer.inputs == inputs, "all forms of a kernel read the same tensors"
    body = text.partition("gl.constexpr):")[2]
    results = range(len(writer.region.results))
    missing = [place for place in results if not re.search(rf"\br{place}\b", body)]
    assert not missing, f"a kernel leaves every result; without {missing}"
    return None if "libdevice" in text else text


@dataclass
class GluonWriter(Writer):
    product_type: torch.dtype = torch.float32
    operands: dict[int, int] = field(default_factory=dict)  # widths of what is only multiplied
    widths: dict[int, None] = field(default_factory=dict)  # of tiles, each with its layout
    early: list[str] = field(default_factory=list)  # where rows go, read before anything else

    def write(self) -> None:
        """Everything in order; what is done leaves at once."""
        self.operands = widths_of_operands(self.region)
        pending = self._results()
        for node in self._order():
            self.compute(node)
            self._put_sides(pending)
            for result in [r for r in pending if self._is_done(r)]:
                self.leave(result, f"r{self.region.results.index(result)}")
                pending.remove(result)
        for result in pending:
            self.leave(result, f"r{self.region.results.index(result)}")

    def _results(self) -> list[fx.Node]:
        """Those that leave together in this order."""
        return list(self.region.results)

    def _order(self) -> list[fx.Node]:
        """Gathers are started first, and waited for last."""
        return sorted(self._in_order(), key=self._waits)

    def _in_order(self) -> list[fx.Node]:
        return [node for node in self.region.nodes if self.is_row_wise(node)]

    def _waits(self, node: fx.Node) -> int:
        """Less for what is not gathered, least for gathers themselves."""
        if self.reads_ahead(node):
            return 0
        return 2 if self._is_gathered(node, set()) else 1

    def _is_gathered(self, node: fx.Node, seen: set[fx.Node]) -> bool:
        if node in seen or node not in self.region.nodes:
            return False
        seen.add(node)
        operands = facts.row_operands(node, self.region.n_rows) or []
        is_gather = facts.gather_of(node) is not None
        return is_gather or any(self._is_gathered(x, seen) for x in operands)

    def _is_done(self, result: fx.Node) -> bool:
        if self.is_row_wise(result):
            return result in self.names
        segment, outer = facts.segment_of(result), facts.outer_of(result)
        if segment is not None:
            needed = [segment.source]
        elif outer is not None:
            needed = [outer.left, outer.right]
        else:
            needed = [x for x in [facts.column_sum_of(result)] if x is not None]
        return all(x in self.names or x not in self.region.nodes for x in needed)

    def text(self) -> str:
        n = self.region.n_rows
        parameters = [f"p{i}" for i in range(len(self.inputs))]
        parameters += [f"r{i}" for i in range(len(self.region.results))]
        lines = [
            *self._layouts(),
            *self.before,
            "fence_async_shared()",
            *self._first_ahead(),
            f"for tile in range(gl.program_id(0), gl.cdiv({n}, BLOCK), gl.num_programs(0)):",
            *(f"    {line}" for line in (*self._tops(), *self.early, *self.inside)),
            *self.after,
        ]
        body = "".join(f"    {line}\n" for line in lines).replace("tl.", "gl.")
        for name, own in _OWN.items():
            body = body.replace(name, own)
        return HEADER.format(parameters=", ".join(parameters)) + body

    def _layouts(self) -> list[str]:
        """Rows of a tile lie with the warps that multiply them."""
        sums = "version=[2, 0], warps_per_cta=[1, num_warps], instr_shape=[16, 8]"
        widths = sorted(self.widths, key=lambda width: width in self.operands)
        widest = max(width for width in self.widths if width not in self.operands)
        return [
            "DOWN: gl.constexpr = BLOCK // 16",
            "ACROSS: gl.constexpr = num_warps // DOWN",
            f"SUMS: gl.constexpr = gl.NVMMADistributedLayout({sums})",
            f"HOT: gl.constexpr = gl.DotOperandLayout(0, SUMS, {self.n_beside()})",
            f"SUMMED: gl.constexpr = gl.DotOperandLayout(1, SUMS, {self.n_beside()})",
            *(f"L{width}: gl.constexpr = {self._layout(width)}" for width in widths),
            f"ROWS: gl.constexpr = gl.SliceLayout(1, L{widest})",
            *self.line_layouts(),
        ]

    @staticmethod
    def line_layouts() -> list[str]:
        """Of matrices and vectors that are read or left at once."""
        return [
            "LINES: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [num_warps, 1], [1, 0])",
            "POSTS: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [1, num_warps], [0, 1])",
            "LINE: gl.constexpr = gl.BlockedLayout([1], [32], [num_warps], [0])",
        ]

    def _layout(self, width: int) -> str:
        if width < MIN_WIDTH:
            return f"gl.BlockedLayout([1, {width}], [32, 1], [num_warps, 1], [1, 0])"
        plain = self.units_layout("[DOWN, ACROSS]", f"{width} // ACROSS")
        if width not in self.operands:
            return plain
        # Where warps share rows, each of them would compute all of a row.
        operand = f"gl.DotOperandLayout(0, L{self.operands[width]}, {self.n_beside()})"
        return f"{operand} if ACROSS == 1 else {plain}"

    def units_layout(self, warps: str, n_across: str) -> str:
        """How the units leave a product: a step of theirs sums over 32 bytes."""
        step = f"[16, {n_across}, {32 // self.product_type.itemsize}]"
        shape = f"warps_per_cta={warps}, instr_shape={step}"
        return f"gl.NVMMADistributedLayout(version=[3, 0], {shape})"

    def n_beside(self) -> int:
        """Numbers that fill a register of an operand."""
        return 4 // self.product_type.itemsize

    def _tops(self) -> list[str]:
        n, wide = self.region.n_rows, self._wide()
        lines = [f"row = tile * BLOCK + gl.arange(0, BLOCK, ROWS){wide}", f"live = row < {n}"]
        for w in self.widths:
            rows = f"gl.arange(0, BLOCK, gl.SliceLayout(1, L{w}))"
            lines += [f"row{w} = tile * BLOCK + {rows}{wide}", f"live{w} = row{w} < {n}"]
        return [*lines, *self._next_ahead()]

    def _first_ahead(self) -> list[str]:
        if not self.ahead:
            return []
        first = f"after = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, ROWS){self._wide()}"
        return [first, *(f"next_{name} = {text}" for name, text in self.ahead.items())]

    # -- names and shapes ------------------------------------------------------------------------

    def column(self, width: int) -> str:
        self.widths.setdefault(width)
        return self.once("c", f"gl.arange(0, {width}, gl.SliceLayout(0, L{width}))")

    def _spread_rows(self, name: str, width: int) -> str:
        """One number for each row beside a tile."""
        self.widths.setdefault(width)
        return f"gl.convert_layout({name}, gl.SliceLayout(1, L{width}))[:, None]"

    def _mask(self, node: fx.Node, rows: str) -> str:
        """Of rows, and of the columns that a tensor has."""
        width, size = width_of(node), facts.features_of(node)[0]
        inner = f" & ({self.column(width)}[None, :] < {size})" if size != width else ""
        return f"{rows}[:, None]{inner}"

    def _place_of(self, node: fx.Node, row: str) -> str:
        column = self.column(width_of(node))
        return f"{row}[:, None] * {facts.features_of(node)[0]} + {column}[None, :]"

    # -- reading ---------------------------------------------------------------------------------

    def rows(self, node: fx.Node) -> str:
        if node in self.names:
            return self.names[node]
        pointer, width = self.pointer(node), width_of(node)
        if width == 1:
            name = self.names[node] = f"a{len(self.ahead)}"
            mask = f"mask=after < {self.region.n_rows}, other=0"
            self.ahead[name] = f"gl.load({pointer} + after, {mask}){as_float(node)}"
        else:
            mask = self._mask(node, self._readable(width))
            place = self._place_of(node, f"row{width}")
            loaded = f"gl.load({pointer} + {place}, mask={mask}, other=0)"
            self.names[node] = self.line(loaded + as_float(node))
        return self.names[node]

    def _readable(self, width: int) -> str:
        """Rows of a tile that there are."""
        return f"live{width}"

    def beside(self, node: fx.Node, width: int) -> str:
        """A tensor that all rows see, beside a tile of so many columns.

        It is read for each tile: a thread would hold many numbers of it all the time.
        """
        n_elements = facts.tensor_of(node).numel()
        if n_elements == 1:
            return self.once("w", f"gl.load({self.pointer(node)}){as_float(node)}")
        column = self.column(width)
        mask = f", mask={column} < {n_elements}, other=0" if n_elements != width else ""
        text = f"gl.load({self.pointer(node)} + {column}{mask}){as_float(node)}"
        return f"{self.line(text)}[None, :]"

    def matrix(self, node: fx.Node, is_regrouped: bool = False) -> str:
        """A matrix in shared memory, as the units want it: what is summed over side by side.

        `is_regrouped`: in the order in which a tile comes that they left themselves.
        """
        base, is_turned = facts.base_of_matrix(node)
        n_in, n_out = facts.tensor_of(node).shape
        down, across = (1, n_in) if is_turned else (n_out, 1)
        layout = "LINES" if down == 1 else "POSTS"  # threads side by side read side by side
        k, m = facts.padded(n_in), facts.padded(n_out)
        lines = f"gl.arange(0, {m}, gl.SliceLayout(1, {layout}))[:, None]"
        inner = f"gl.arange(0, {k}, gl.SliceLayout(0, {layout}))[None, :]"
        inner = f"_grouped({inner})" if is_regrouped else inner
        masks = [f"({i} < {n})" for i, n, p in ((inner, n_in, k), (lines, n_out, m)) if n != p]
        mask = f", mask={' & '.join(masks)}, other=0" if masks else ""
        text = f"gl.load({self.pointer(base)} + {inner} * {down} + {lines} * {across}{mask})"
        if text not in self.shared:
            name = self.shared[text] = f"w{len(self.shared)}"
            self.before += [self._allocated(name, m, str(k), k), f"{name}.store({self._cut(text)})"]
        return self.shared[text]

    def _allocated(self, name: str, down: int, across: str, least: int) -> str:
        kind = TRITON_TYPES[self.product_type]
        bits = 8 * self.product_type.itemsize
        swizzle = min(128, least * bits // 8)
        layout = f"gl.NVMMASharedLayout({swizzle}, {bits}, 2)"
        return f"{name} = gl.allocate_shared_memory({kind}, [{down}, {across}], {layout})"

    def _cut(self, text: str) -> str:
        """To what the units multiply."""
        if self.product_type is torch.float32:
            return f"_rounded({text})"
        return f"({text}).to({TRITON_TYPES[self.product_type]})"

    # -- computing -------------------------------------------------------------------------------

    def _gathered(self, gather: facts.Gather) -> str:
        index, n = self.rows(gather.index), facts.n_rows_of(gather.table)
        if gather.wraps:
            index = self.line(f"gl.where({index} < 0, {index} + {n}, {index})")
        if facts.tensor_of(gather.table).numel() < 2**31:
            index = self.line(f"{index}.to(gl.int32)")
        is_there = self.line(self._in_table(index, n))
        floats = facts.tensor_of(gather.table).is_floating_point()
        table, other = gather.table, 'float("nan")' if floats else "0"
        width, pointer = width_of(table), self.pointer(gather.table)
        if width == 1:
            loaded = f"gl.load({pointer} + {index}, mask={is_there}, other={other})"
            return self.line(loaded + as_float(table))
        self.widths.setdefault(width)
        layout = f"gl.SliceLayout(1, L{width})"
        index = self.line(f"gl.convert_layout({index}, {layout})")
        is_there = self.line(f"gl.convert_layout({is_there}, {layout})")
        place, mask = self._place_of(table, index), self._mask(table, is_there)
        loaded = f"gl.load({pointer} + {place}, mask={mask}, other={other})"
        return self.line(loaded + as_float(table))

    def _in_table(self, index: str, n: int) -> str:
        return f"live & ({index} >= 0) & ({index} < {n})"

    def _product(self, dot: facts.Dot) -> str:
        n_in, n_out = facts.tensor_of(dot.weight).shape
        if min(n_in, n_out) == 1:
            text = self._narrow_product(dot, n_in, n_out)
        else:
            text = self._wide_product(dot, n_in, facts.padded(n_out))
        if dot.bias is not None:
            text += f" + {self.beside(dot.bias, facts.padded(n_out))}"
        return self.line(text)

    def _narrow_product(self, dot: facts.Dot, n_in: int, n_out: int) -> str:
        a, size = self.rows(dot.rows), facts.padded(max(n_in, n_out))
        base, _ = facts.base_of_matrix(dot.weight)
        w = self.beside(base, size)
        if n_in == 1:
            return f"{self._spread_rows(a, size)} * {w}" if n_out > 1 else f"{a} * {w}"
        return self._over_features(f"{self._features(dot.rows)} * {w}", dot.rows)

    def _wide_product(self, dot: facts.Dot, n_in: int, width: int) -> str:
        self.widths.setdefault(width)
        a = self._cut(self._without_padding(self.rows(dot.rows), n_in))
        is_regrouped = (
            self.product_type is torch.float32 and width_of(dot.rows) not in self.operands
        )
        if is_regrouped:
            a = f"_regrouped({a}, BLOCK, {facts.padded(n_in)})"
        a = f"gl.convert_layout({a}, gl.DotOperandLayout(0, L{width}, {self.n_beside()}))"
        zero = self.once("z", f"gl.zeros([BLOCK, {width}], gl.float32, L{width})")
        matrix = f"{self.matrix(dot.weight, is_regrouped)}.permute((1, 0))"
        return f"warpgroup_mma({a}, {matrix}, {zero}, use_acc=False)"

    def _without_padding(self, tile: str, n_features: int) -> str:
        width = facts.padded(n_features)
        if width == n_features:
            return tile
        return self.line(f"gl.where({self.column(width)}[None, :] < {n_features}, {tile}, 0.0)")

    def _operand(self, argument: fx.Node, node: fx.Node, rows: list[fx.Node]) -> str:
        width = width_of(node)
        if argument not in rows:
            return self.beside(argument, width)
        name = self.rows(argument)
        return self._spread_rows(name, width) if width_of(argument) < width else name

    def _reduced(self, reduction: facts.RowReduction) -> str:
        source = reduction.source
        if width_of(source) == 1:
            tile = self.rows(source)
            return f"gl.abs({tile})" if reduction.kind == "norm" else tile
        tile, size = self._features(source), facts.features_of(source)[0]
        squared = f"{tile} * {tile}" if reduction.kind == "norm" else tile
        text = self._over_features(squared, source)
        if reduction.kind == "norm":
            return f"gl.sqrt({text})"
        return f"({text} / {size})" if reduction.kind == "mean" else text

    def _features(self, node: fx.Node) -> str:
        """A tile that is nought beyond its last feature."""
        return self._without_padding(self.rows(node), facts.features_of(node)[0])

    def _over_features(self, text: str, node: fx.Node) -> str:  # noqa: ARG002 - one of its tiles
        """Something like the tile of a node, summed in each row."""
        return f"gl.convert_layout(gl.sum({text}, 1), ROWS)"

    def _viewed(self, node: fx.Node) -> str:
        source, width = node.all_input_nodes[0], width_of(node)
        name = self.rows(source)
        if width_of(source) == width:
            return name
        return self.line(f"{self._spread_rows(name, width)} + {self._zeros(width)}")

    def _zeros(self, width: int) -> str:
        self.widths.setdefault(width)
        return self.once("z", f"gl.zeros([BLOCK, {width}], gl.float32, L{width})")

    # -- leaving ---------------------------------------------------------------------------------

    def _store(self, node: fx.Node, result: str) -> None:
        kind, width = TRITON_TYPES[facts.tensor_of(node).dtype], width_of(node)
        value = f"{self.rows(node)}.to({kind})"
        if width == 1:
            self.inside.append(f"gl.store({result} + row, {value}, mask=live)")
            return
        place, mask = self._place_of(node, f"row{width}"), self._mask(node, f"live{width}")
        self.inside.append(f"gl.store({result} + {place}, {value}, mask={mask})")

    def _alive(self, node: fx.Node) -> str:
        name, width = self.rows(node), width_of(node)
        key = ("alive", name)
        if key not in self.shared:
            live = "live" if width == 1 else f"live{width}[:, None]"
            self.shared[key] = self.line(f"gl.where({live}, {name}, 0.0)")
        return self.shared[key]

    def _add_columns(self, source: fx.Node, result: str) -> None:
        self._add_over_rows(self._alive(source), facts.features_of(source)[0], result)

    def _add_over_rows(self, text: str, size: int, result: str) -> None:
        """Each thread sums its own rows; they meet after the last tile."""
        width = facts.padded(size)
        if width == 1:
            zero = self.once("z", "gl.zeros([BLOCK], gl.float32, ROWS)")
            self._add_up(result, zero, text)
            self.after.append(f'gl.atomic_add({result}, gl.sum(s_{result}, 0), sem="relaxed")')
            return
        column, zero = f"gl.arange(0, {width}, LINE)", self._zeros(width)
        mask = f"{column} < {size}"
        if width < MIN_WIDTH:
            self._add_up(result, zero, text)
            total = f"gl.convert_layout(gl.sum(s_{result}, 0), LINE)"
        else:
            own = (f"_in_threads({each}, BLOCK, {width})" for each in (zero, text))
            self._add_up(result, *own)
            total = f"gl.convert_layout(gl.sum(gl.sum(s_{result}, 0), 0), LINE)"
        self.after.append(added(f"{result} + {column}", total, mask))

    def _add_up(self, result: str, zero: str, text: str) -> None:
        self.before.append(f"s_{result} = {zero}")
        self.inside.append(f"s_{result} += {text}")

    def _add_outer(self, outer: facts.Outer, result: str) -> None:
        n, m = facts.features_of(outer.left)[0], facts.features_of(outer.right)[0]
        if min(n, m) == 1:
            wide, narrow = (outer.left, outer.right) if n > m else (outer.right, outer.left)
            beside = self._spread_rows(self._alive(narrow), width_of(wide))
            self._add_over_rows(f"{self._alive(wide)} * {beside}", max(n, m), result)
            return
        down, across = _sides(outer)
        self._put_side(down, f"d_{result}")
        self._put_side(across, f"e_{result}")
        self.inside += [
            "fence_async_shared()",
            f"s_{result} = warpgroup_mma(d_{result}, e_{result}.permute((1, 0)), s_{result})",
        ]
        layout = self._outer_layout(result, width_of(across))
        zeros = f"gl.zeros([{width_of(down)}, {width_of(across)}], gl.float32, {layout})"
        self.before.append(f"s_{result} = {zeros}")
        self.leave_outer(outer, (down, across), layout, result)

    def leave_outer(
        self, outer: facts.Outer, sides: tuple[fx.Node, fx.Node], layout: str, result: str
    ) -> None:
        """Add a sum that has one side down and one across to memory, which has left × right."""
        down, across = sides
        steps = {outer.left: facts.features_of(outer.right)[0], outer.right: 1}
        i = f"gl.arange(0, {width_of(down)}, gl.SliceLayout(1, {layout}))[:, None]"
        j = f"gl.arange(0, {width_of(across)}, gl.SliceLayout(0, {layout}))[None, :]"
        sizes = (facts.features_of(side)[0] for side in sides)
        mask = " & ".join(f"({at} < {size})" for at, size in zip((i, j), sizes, strict=True))
        place = f"{result} + {i} * {steps[down]} + {j} * {steps[across]}"
        self.after.append(added(place, f"s_{result}", mask))

    def _put_sides(self, pending: list[fx.Node]) -> None:
        """Sides of outer products as soon as they are known, so that no register holds them."""
        for result in pending:
            outer = facts.outer_of(result) if facts.outer_size_of(result) else None
            for name, side in zip("de", _sides(outer) if outer is not None else (), strict=False):
                if side in self.names:
                    self._put_side(side, f"{name}_r{self.region.results.index(result)}")

    def _put_side(self, side: fx.Node, name: str) -> None:
        if name not in self.shared:
            self.shared[name] = name
            self.before.append(self._allocated(name, width_of(side), "BLOCK", MIN_DOWN))
            self.inside.append(f"{name}.permute((1, 0)).store({self._cut(self._alive(side))})")

    def _outer_layout(self, result: str, width: int) -> str:
        layout = self.units_layout("[4, num_warps // 4]", f"{width} // (num_warps // 4)")
        self.before.append(f"O_{result}: gl.constexpr = {layout}")
        return f"O_{result}"

    def _add_to_segments(self, segment: facts.Segment, n_segments: int, result: str) -> None:
        width, tile = width_of(segment.source), self._alive(segment.source)
        if width < MIN_WIDTH:
            self.inside += self._added_one_by_one(segment, n_segments, tile, result)
            return
        size = facts.features_of(segment.source)[0]
        goes, low, high = self._goals(segment, n_segments)
        column = self.once("c", f"gl.arange(0, {width}, gl.SliceLayout(0, SUMS))")
        inner = f" & ({column}[None, :] < {size})" if width != size else ""
        summed = self.line(f"gl.convert_layout({self._sum_operand(tile)}, SUMMED)")
        one_by_one = self._added_one_by_one(segment, n_segments, tile, result)
        place = f"place[:, None] * {size} + {column}[None, :]"
        self.inside += [
            f"if {high} - {low} < 2 * BLOCK:",
            f"    for first in range({low}, {high} + 1, WINDOW):",
            "        window = first + gl.arange(0, WINDOW, gl.SliceLayout(1, HOT))",
            f"        hot = (window[:, None] == {goes}[None, :]).to(gl.float32)",
            f"        part = gl.zeros([WINDOW, {width}], gl.float32, SUMS)",
            f"        part = {self._windowed_sum(summed)}",
            "        touched = gl.convert_layout(gl.max(hot, 1), gl.SliceLayout(1, SUMS)) > 0",
            "        place = first + gl.arange(0, WINDOW, gl.SliceLayout(1, SUMS))",
            f"        {added(f'{result} + {place}', 'part', f'touched[:, None]{inner}')}",
            "else:",
            *(f"    {line}" for line in one_by_one),
        ]

    def _added_one_by_one(
        self, segment: facts.Segment, n_segments: int, tile: str, result: str
    ) -> list[str]:
        """Each row for itself: right wherever rows go."""
        width = width_of(segment.source)
        rows = self.line(self._goal(segment, self.rows(segment.index), n_segments, "live"))
        if width == 1:
            return [added(f"{result} + {rows}", tile, f"{rows} >= 0")]
        place, mask = self._place_of(segment.source, "goal"), self._mask(segment.source, "is_one")
        return [
            f"goal = gl.convert_layout({rows}, gl.SliceLayout(1, L{width}))",
            "is_one = goal >= 0",
            added(f"{result} + {place}", tile, mask),
        ]

    def _sum_operand(self, tile: str) -> str:
        return tile if self.product_type is torch.float32 else self._cut(tile)

    def _windowed_sum(self, summed: str) -> str:
        if self.product_type is torch.float32:
            return f"_into_window(hot, {summed}, part)"
        return f"mma_v2(hot.to({TRITON_TYPES[self.product_type]}), {summed}, part)"

    def _goals(self, segment: facts.Segment, n_segments: int) -> tuple[str, str, str]:
        """As in the other form; each warp reads them all, so that their range takes no barrier."""
        pointer = self.pointer(segment.index)
        key = ("goals", pointer, n_segments, segment.skipped)
        if key not in self.shared:
            number = len(self.early)
            row = f"tile * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(0, HOT)){self._wide()}"
            is_live = f"k{number} < {self.region.n_rows}"
            loaded = f"gl.load({pointer} + k{number}, mask={is_live}, other=-1)"
            self.early += [f"k{number} = {row}", f"g{number} = {loaded}"]
            goes = self.line(self._goal(segment, f"g{number}", n_segments, is_live))
            low = self.line(f"gl.min(gl.where({goes} < 0, {n_segments}, {goes}), 0)")
            self.shared[key] = f"{goes} {low} {self.line(f'gl.max({goes}, 0)')}"
        goes, low, high = self.shared[key].split()
        return goes, low, high

    def _goal(self, segment: facts.Segment, index: str, n_segments: int, live: str) -> str:
        if segment.wraps:
            index = self.line(f"gl.where({index} < 0, {index} + {n_segments}, {index})")
        is_there = f"({live}) & ({index} >= 0) & ({index} < {n_segments})"
        if segment.skipped >= 0:
            is_there += f" & ({index} != {segment.skipped})"
        return f"gl.where({is_there}, {index}, -1).to(gl.int32)"


def _sides(outer: facts.Outer) -> tuple[fx.Node, fx.Node]:
    """What goes down and what across a product: the narrower side down if it is wide enough."""
    narrow, wide = sorted((outer.left, outer.right), key=width_of)
    return (narrow, wide) if width_of(narrow) >= MIN_DOWN else (wide, narrow)


def added(place: str, tile: str, mask: str) -> str:
    return f'gl.atomic_add({place}, {tile}, mask={mask}, sem="relaxed")'

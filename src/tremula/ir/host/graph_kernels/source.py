"""Triton source of a kernel: a tile of rows at a time, from what it reads to what it leaves.

Programs share the tiles among them. A tile is read, everything row-wise is computed in registers,
sums over all rows stay in registers until a program has seen its last tile, and sums into segments
are made per tile: as long as its rows go to a few neighbouring segments, they are first summed by a
product with a matrix of ones, so that memory sees one addition for each segment of a tile. Sorted
indices, and those of many small graphs in one batch, are such; others are right, too, and slower.

Where rows are multiplied by matrices few warps run on a multiprocessor, so that nothing hides how
long memory takes: one number per row is read a tile ahead, and gathers come first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import fx

from tremula.ir.host.graph_kernels import facts
from tremula.ir.host.graph_kernels.expressions import ELEMENT_WISE, TRITON_TYPES, number
from tremula.ir.host.graph_kernels.regions import Region
from tremula.ir.nodes import operand, overload_of

aten = torch.ops.aten

_CONDITIONS = {aten.where.self: (0,), aten.masked_fill.Scalar: (1,)}  # operands that are truths
HEADER = '''"""Written by tremula.ir.host.graph_kernels: do not edit."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _rounded(x):
    """To the nearest number of TF32. What is not pure is done once, not by each warp that reads."""
    return tl.inline_asm_elementwise(
        "cvt.rna.tf32.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=False, pack=1
    )


@triton.jit
def _softplus(x):
    """log(1 + exp(x)) without branches: a polynomial for log1p on [0, 1], to 2e-7."""
    t = tl.exp(-tl.abs(x))
    p = 0.00510582579 * t - 0.0289919564
    p = p * t + 0.0773807383
    p = p * t - 0.135906002
    p = p * t + 0.190713096
    p = p * t - 0.248339455
    p = p * t + 0.333179343
    p = p * t - 0.499994357
    p = p * t + 0.999999965
    return tl.maximum(x, 0.0) + p * t


@triton.jit
'''
_SIZES = "BLOCK: tl.constexpr, WINDOW: tl.constexpr, HOIST: tl.constexpr"


@dataclass(frozen=True)
class KernelSource:
    """The text of a kernel, and what its parameters are: inputs, then results."""

    text: str
    inputs: tuple[fx.Node, ...]
    is_summed: tuple[bool, ...]  # results that start at nought and are added to
    sums_over_rows: bool  # then few programs see many tiles each


def kernel_source(region: Region, precision: str, inputs: Sequence[fx.Node] = ()) -> KernelSource:
    """Write the kernel; `precision` is Triton's name for how float32 products are computed.

    `inputs` come before those that it finds, for another form of the same kernel.
    """
    is_heavy = any(facts.weight_of(node) for node in region.nodes)
    writer = Writer(region, precision, is_heavy, list(inputs))
    for node in sorted(region.nodes, key=lambda node: not writer.reads_ahead(node)):
        if node in region.results and not writer.is_row_wise(node):
            continue
        writer.compute(node)
    for index, node in enumerate(region.results):
        writer.leave(node, f"r{index}")
    return writer.finished()


@dataclass
class Writer:
    """A kernel as it grows: what is read once, what a tile does, what is left after the last."""

    region: Region
    precision: str
    is_heavy: bool  # matrices leave room for few programs
    inputs: list[fx.Node] = field(default_factory=list)
    names: dict[fx.Node, str] = field(default_factory=dict)  # of computed and loaded tiles
    ahead: dict[str, str] = field(default_factory=dict)  # what is read a tile ahead
    before: list[str] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    shared: dict[object, str] = field(default_factory=dict)  # text -> the name it was given
    is_summed: list[bool] = field(default_factory=list)

    def is_row_wise(self, node: fx.Node) -> bool:
        return facts.row_operands(node, self.region.n_rows) is not None

    def reads_ahead(self, node: fx.Node) -> bool:
        """Whether a gather can be started before anything is computed."""
        gather = facts.gather_of(node)
        return self.is_heavy and gather is not None and gather.index not in self.region.nodes

    def finished(self) -> KernelSource:
        n = self.region.n_rows
        parameters = [f"p{i}" for i in range(len(self.inputs))]
        parameters += [f"r{i}" for i in range(len(self.region.results))]
        lines = [
            *self.before,
            *self._first_ahead(),
            f"for tile in range(tl.program_id(0), tl.cdiv({n}, BLOCK), tl.num_programs(0)):",
            f"    row = tile * BLOCK + tl.arange(0, BLOCK){self._wide()}",
            f"    live = row < {n}",
            *(f"    {line}" for line in (*self._next_ahead(), *self.inside)),
            *self.after,
        ]
        text = HEADER + f"def kernel({', '.join(parameters)}, {_SIZES}):\n"
        text += "".join(f"    {line}\n" for line in lines)
        return KernelSource(text, tuple(self.inputs), tuple(self.is_summed), bool(self.after))

    def _first_ahead(self) -> list[str]:
        if not self.ahead:
            return []
        first = f"after = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK){self._wide()}"
        return [first, *(f"next_{name} = {text}" for name, text in self.ahead.items())]

    def _next_ahead(self) -> list[str]:
        if not self.ahead:
            return []
        return [
            *(f"{name} = next_{name}" for name in self.ahead),
            "after = row + tl.num_programs(0) * BLOCK",
            *(f"next_{name} = {text}" for name, text in self.ahead.items()),
        ]

    def _wide(self) -> str:
        """Offsets of large tensors need 64 bits."""
        return ".to(tl.int64)" if self.region.n_rows * facts.MAX_FEATURES >= 2**31 else ""

    # -- names ---------------------------------------------------------------------------------

    def pointer(self, node: fx.Node) -> str:
        if node not in self.inputs:
            self.inputs.append(node)
        return f"p{self.inputs.index(node)}"

    def line(self, text: str) -> str:
        """A line of the loop that computes something new."""
        name = f"v{len(self.inside)}"
        self.inside.append(f"{name} = {text}")
        return name

    def once(self, prefix: str, text: str) -> str:
        """A value that does not depend on the tile."""
        if text not in self.shared:
            self.shared[text] = f"{prefix}{len(self.shared)}"
            self.before.append(f"{self.shared[text]} = {text}")
        return self.shared[text]

    def columns(self, size: int) -> str:
        return self.once("c", f"tl.arange(0, {facts.padded(size)})")

    # -- reading -------------------------------------------------------------------------------

    def rows(self, node: fx.Node) -> str:
        """The tile of a row-wise value: computed before, or read."""
        if node not in self.names and self.is_heavy and not facts.features_of(node):
            name = self.names[node] = f"a{len(self.ahead)}"
            mask = f"mask=after < {self.region.n_rows}, other=0"
            self.ahead[name] = f"tl.load({self.pointer(node)} + after, {mask}){as_float(node)}"
        elif node not in self.names:
            self.names[node] = self._read(node, "row", "live", "0")
        return self.names[node]

    def _read(self, node: fx.Node, row: str, mask: str, other: str) -> str:
        place, inner = self._place(node, row)
        mask = _spread(mask, 0, len(facts.features_of(node)) + 1) + inner
        loaded = f"tl.load({self.pointer(node)} + {place}, mask={mask}, other={other})"
        return self.line(loaded + as_float(node))

    def _place(self, node: fx.Node, row: str) -> tuple[str, str]:
        """The offsets of a tile of rows, and what a mask of rows lacks for it."""
        sizes = facts.features_of(node)
        rank, terms, inner = len(sizes) + 1, [], ""
        if sizes:
            terms.append(f"{_spread(row, 0, rank)} * {prod(sizes)}")
        else:
            terms.append(row)
        for axis, size in enumerate(sizes, 1):
            if size == 1:
                continue
            column = _spread(self.columns(size), axis, rank)
            step = prod(sizes[axis:])
            terms.append(f"{column} * {step}" if step > 1 else column)
            if facts.padded(size) != size:
                inner += f" & ({column} < {size})"
        return " + ".join(terms), inner

    def whole(self, node: fx.Node, rank: int) -> str:
        """A tensor that all rows see, aligned with the features of a tile of `rank` dimensions."""
        value = facts.tensor_of(node)
        sizes = [n for index, n in enumerate(value.shape) if value.dim() < rank or index]
        terms, masks = ["0"], []
        for number_, size in enumerate(sizes):
            if size == 1:
                continue
            axis = rank - len(sizes) + number_
            column = _spread(self.columns(size), axis, rank)
            terms.append(f"{column} * {prod(sizes[number_ + 1 :])}")
            if facts.padded(size) != size:
                masks.append(f"({column} < {size})")
        mask = f", mask={' & '.join(masks)}, other=0" if masks else ""
        pointer = self.pointer(node)
        return self.once("w", f"tl.load({pointer} + {' + '.join(terms)}{mask}){as_float(node)}")

    def matrix(self, node: fx.Node) -> str:
        """A matrix that rows are multiplied by, read once or for each tile."""
        base, is_turned = facts.base_of_matrix(node)
        n_in, n_out = facts.tensor_of(node).shape
        down, across = (1, n_in) if is_turned else (n_out, 1)
        k, m = f"{self.columns(n_in)}[:, None]", f"{self.columns(n_out)}[None, :]"
        masks = [f"({i} < {n})" for i, n in ((k, n_in), (m, n_out)) if facts.padded(n) != n]
        mask = f", mask={' & '.join(masks)}, other=0" if masks else ""
        text = f"tl.load({self.pointer(base)} + {k} * {down} + {m} * {across}{mask})"
        if self._is_rounded(facts.tensor_of(node).dtype):
            text = f"_rounded({text})"
        if text not in self.shared:
            name = self.shared[text] = f"w{len(self.shared)}"
            self.before += ["if HOIST:", f"    {name} = {text}"]
            self.inside += ["if not HOIST:", f"    {name} = {text}"]
        return self.shared[text]

    # -- computing -----------------------------------------------------------------------------

    def compute(self, node: fx.Node) -> None:
        gather, dot = facts.gather_of(node), facts.dot_of(node)
        reduction = facts.row_reduction_of(node)
        if gather is not None:
            self.names[node] = self._gathered(gather)
        elif dot is not None:
            self.names[node] = self._product(dot)
        elif node.target in ELEMENT_WISE:
            self.names[node] = self.line(self._element_wise(node))
        elif reduction is not None:
            self.names[node] = self.line(self._reduced(reduction))
        else:
            self.names[node] = self._viewed(node)

    def _gathered(self, gather: facts.Gather) -> str:
        """A row outside the table is NaN: the device cannot raise."""
        index, n = self.rows(gather.index), facts.n_rows_of(gather.table)
        if gather.wraps:
            index = self.line(f"tl.where({index} < 0, {index} + {n}, {index})")
        if facts.tensor_of(gather.table).numel() < 2**31:
            index = self.line(f"{index}.to(tl.int32)")
        is_there = self.line(f"live & ({index} >= 0) & ({index} < {n})")
        floats = facts.tensor_of(gather.table).is_floating_point()
        return self._read(gather.table, index, is_there, 'float("nan")' if floats else "0")

    def _product(self, dot: facts.Dot) -> str:
        a = self.rows(dot.rows)
        n_in, n_out = facts.tensor_of(dot.weight).shape
        a = self._without_padding(a, n_in)
        if min(n_in, n_out) == 1:
            line = f"{self.columns(max(n_in, n_out))}"
            base, _ = facts.base_of_matrix(dot.weight)
            size = max(n_in, n_out)
            mask = f", mask={line} < {size}, other=0" if facts.padded(size) != size else ""
            w = self.once("w", f"tl.load({self.pointer(base)} + {line}{mask}){as_float(base)}")
            text = f"{a} * {w}[None, :]"
            text = f"tl.sum({text}, 1)[:, None]" if n_out == 1 and n_in > 1 else text
        else:
            w = self.matrix(dot.weight)
            text = self._dot(a, w, facts.tensor_of(dot.weight).dtype)
        if dot.bias is not None:
            text += f" + {self.whole(dot.bias, 2)}"
        return self.line(text)

    def _dot(self, a: str, b: str, dtype: torch.dtype) -> str:
        if self._is_rounded(dtype):
            a = f"_rounded({a})"
        if dtype is torch.float32:
            return f'tl.dot({a}, {b}, input_precision="{self.precision}")'
        kind = TRITON_TYPES[dtype]
        return f"tl.dot({a}.to({kind}), {b}.to({kind}))"

    def _is_rounded(self, dtype: torch.dtype) -> bool:
        """The units of TF32 would cut off what is left, which adds up."""
        return dtype is torch.float32 and self.precision == "tf32"

    def _without_padding(self, tile: str, n_features: int) -> str:
        """Columns beyond the last hold anything: they must not enter a sum."""
        if facts.padded(n_features) == n_features:
            return tile
        return self.line(
            f"tl.where({self.columns(n_features)}[None, :] < {n_features}, {tile}, 0.0)"
        )

    def _element_wise(self, node: fx.Node) -> str:
        rows = facts.row_operands(node, self.region.n_rows) or []
        value = facts.tensor_of(node)
        conditions = _CONDITIONS.get(overload_of(node), ())
        result_is_float = value.is_floating_point()

        def text(place: int, argument: object) -> str:
            if not isinstance(argument, fx.Node):
                return number(argument)
            name = self._operand(argument, node, rows)
            is_float = facts.tensor_of(argument).is_floating_point()
            if result_is_float and not is_float and place not in conditions:
                return f"{name}.to(tl.float32)"
            return name

        if node.target is aten._to_copy.default:
            return self._converted(node, text(1, node.args[0]))
        operands = [text(place, argument) for place, argument in enumerate(node.args)]
        named = {name: text(-1, a) for name, a in node.kwargs.items() if name != "memory_format"}
        return ELEMENT_WISE[overload_of(node)](*operands, **named)

    def _operand(self, argument: fx.Node, node: fx.Node, rows: list[fx.Node]) -> str:
        """An operand of something element-wise, aligned with its result."""
        if argument in rows:
            return self.rows(argument)
        return self.whole(argument, facts.tensor_of(node).dim())

    def _converted(self, node: fx.Node, name: str) -> str:
        source, result = (facts.tensor_of(n).dtype for n in (operand(node), node))
        if result.is_floating_point:
            return name
        if result is torch.bool:
            return f"({name} != 0)"
        return f"{name}.to({TRITON_TYPES[result]})" if source != result else name

    def _reduced(self, reduction: facts.RowReduction) -> str:
        tile = self.rows(reduction.source)
        sizes = facts.features_of(reduction.source)
        axis, size = len(sizes), sizes[-1]
        if facts.padded(size) != size:
            column = _spread(self.columns(size), axis, axis + 1)
            tile = self.line(f"tl.where({column} < {size}, {tile}, 0.0)")
        text = f"tl.sum({tile}, {axis})"
        if reduction.kind == "mean":
            text = f"({text} / {size})"
        elif reduction.kind == "norm":
            text = f"tl.sqrt(tl.sum({tile} * {tile}, {axis}))"
        return f"tl.expand_dims({text}, {axis})" if reduction.keeps else text

    def _viewed(self, node: fx.Node) -> str:
        source = self.rows(operand(node))
        before, after = facts.features_of(operand(node)), facts.features_of(node)
        if before == after:
            return source
        sides = ", ".join(str(facts.padded(n)) for n in after)
        what = "broadcast_to" if node.target is aten.expand.default else "reshape"
        shape = f"[BLOCK, {sides}]" if after else "[BLOCK]"
        return self.line(f"tl.{what}({source}, {shape})")

    # -- leaving -------------------------------------------------------------------------------

    def leave(self, node: fx.Node, result: str) -> None:
        segment, outer = facts.segment_of(node), facts.outer_of(node)
        summed = facts.column_sum_of(node)
        is_kept = self.is_row_wise(node)
        self.is_summed.append(not is_kept)
        if is_kept:
            self._store(node, result)
        elif segment is not None:
            self._add_to_segments(segment, facts.n_rows_of(node), result)
        elif summed is not None:
            self._add_columns(summed, result)
        else:
            assert outer is not None, f"{node} leaves nothing"
            self._add_outer(outer, result)

    def _store(self, node: fx.Node, result: str) -> None:
        place, inner = self._place(node, "row")
        mask = _spread("live", 0, len(facts.features_of(node)) + 1) + inner
        kind = TRITON_TYPES[facts.tensor_of(node).dtype]
        self.inside.append(
            f"tl.store({result} + {place}, {self.rows(node)}.to({kind}), mask={mask})"
        )

    def _alive(self, node: fx.Node) -> str:
        """A tile whose rows beyond the last are nought."""
        name = self.rows(node)
        key = ("alive", name)
        if key not in self.shared:
            live = _spread("live", 0, len(facts.features_of(node)) + 1)
            self.shared[key] = self.line(f"tl.where({live}, {name}, 0.0)")
        return self.shared[key]

    def _add_columns(self, source: fx.Node, result: str) -> None:
        tile = self._alive(source)
        self._add_over_rows(f"tl.sum({tile}, 0)", facts.features_of(source)[0], result)

    def _add_over_rows(self, text: str, size: int, result: str) -> None:
        self.before.append(f"s_{result} = tl.zeros([{facts.padded(size)}], tl.float32)")
        self.inside.append(f"s_{result} += {text}")
        column = self.columns(size)
        mask = f", mask={column} < {size}" if facts.padded(size) != size else ""
        self.after.append(f'tl.atomic_add({result} + {column}, s_{result}{mask}, sem="relaxed")')

    def _add_outer(self, outer: facts.Outer, result: str) -> None:
        a, b = self._alive(outer.left), self._alive(outer.right)
        n, m = facts.features_of(outer.left)[0], facts.features_of(outer.right)[0]
        if min(n, m) == 1:
            self._add_over_rows(f"tl.sum({a} * {b}, 0)", max(n, m), result)
            return
        # The narrower side is turned: the wider one is often a product, which is laid out for it.
        sides, steps = ((a, b), (m, 1)) if n <= m else ((b, a), (1, m))
        down, across = self.columns(min(n, m)), self.columns(max(n, m))
        self.before.append(
            f"s_{result} = tl.zeros([{facts.padded(min(n, m))}, {facts.padded(max(n, m))}], "
            "tl.float32)"
        )
        product = self._outer_product(*sides, facts.tensor_of(outer.right).dtype)
        self.inside.append(f"s_{result} += {product}")
        place = f"{down}[:, None] * {steps[0]} + {across}[None, :] * {steps[1]}"
        mask = f"({down}[:, None] < {min(n, m)}) & ({across}[None, :] < {max(n, m)})"
        self.after.append(
            f'tl.atomic_add({result} + {place}, s_{result}, mask={mask}, sem="relaxed")'
        )

    def _outer_product(self, turned: str, other: str, dtype: torch.dtype) -> str:
        if self._is_rounded(dtype):
            turned, other = f"_rounded({turned})", f"_rounded({other})"
        if dtype is torch.float32:
            return f'tl.dot(tl.trans({turned}), {other}, input_precision="{self.precision}")'
        kind = TRITON_TYPES[dtype]
        return f"tl.dot(tl.trans({turned}.to({kind})), {other}.to({kind}))"

    def _add_to_segments(self, segment: facts.Segment, n_segments: int, result: str) -> None:
        sizes = facts.features_of(segment.source)
        width = prod(facts.padded(n) for n in sizes)
        tile = self._flat(self._alive(segment.source), len(sizes), width)
        goes, low, high = self._goals(segment, n_segments)
        column, inner = self._flat_columns(sizes, width)
        row = f"{prod(sizes)} + {column}[None, :]"
        self.inside += [
            f"if {high} - {low} < 2 * BLOCK:",
            f"    for first in range({low}, {high} + 1, WINDOW):",
            "        window = first + tl.arange(0, WINDOW)",
            f"        hot = window[:, None] == {goes}[None, :]",
            f"        part = {self._windowed(tile, width, segment)}",
            "        touched = tl.max(hot.to(tl.int32), 1) > 0",
            f"        {_added(f'{result} + window[:, None] * {row}', 'part', 'touched', inner)}",
            "else:",
            f"    {_added(f'{result} + {goes}[:, None] * {row}', tile, f'({goes} >= 0)', inner)}",
        ]

    def _windowed(self, tile: str, width: int, segment: facts.Segment) -> str:
        """Rows of a tile summed by where they go, in float32 whatever the precision of products."""
        if width < facts.MIN_DOT:
            return f"tl.sum(tl.where(hot[:, :, None], {tile}[None, :, :], 0.0), 1)"
        dtype = facts.tensor_of(segment.source).dtype
        if dtype is torch.float32:
            return f'tl.dot(hot.to(tl.float32), {tile}, input_precision="tf32x3")'
        kind = TRITON_TYPES[dtype]
        return f"tl.dot(hot.to({kind}), {tile}.to({kind}))"

    def _goals(self, segment: facts.Segment, n_segments: int) -> tuple[str, str, str]:
        """Where each row goes, -1 for nowhere, and the first and last place of the tile."""
        index = self.rows(segment.index)
        if segment.wraps:
            index = f"tl.where({index} < 0, {index} + {n_segments}, {index})"
        key = ("goals", index, n_segments, segment.skipped)
        if key not in self.shared:
            is_there = f"live & ({index} >= 0) & ({index} < {n_segments})"
            if segment.skipped >= 0:
                is_there += f" & ({index} != {segment.skipped})"
            goes = self.line(f"tl.where({is_there}, {index}, -1).to(tl.int32)")
            low = self.line(f"tl.min(tl.where({goes} < 0, {n_segments}, {goes}), 0)")
            high = self.line(f"tl.max({goes}, 0)")
            self.shared[key] = f"{goes} {low} {high}"
        goes, low, high = self.shared[key].split()
        return goes, low, high

    def _flat(self, tile: str, rank: int, width: int) -> str:
        return tile if rank == 1 else self.line(f"tl.reshape({tile}, [BLOCK, {width}])")

    def _flat_columns(self, sizes: tuple[int, ...], width: int) -> tuple[str, str]:
        """Offsets of the features of a row within a tile that has one dimension for all of them."""
        column = self.once("c", f"tl.arange(0, {width})")
        if prod(sizes) == width:
            return column, ""
        if len(sizes) == 1:
            return column, f" & ({column}[None, :] < {sizes[0]})"
        offsets, masks, inner = [], [], 1
        for place in reversed(range(len(sizes))):
            digit = f"({column} // {inner} % {facts.padded(sizes[place])})"
            offsets.append(f"{digit} * {prod(sizes[place + 1 :])}")
            masks.append(f"({digit} < {sizes[place]})")
            inner *= facts.padded(sizes[place])
        offset = self.once("c", " + ".join(offsets))
        mask = self.once("m", " & ".join(masks))
        return offset, f" & {mask}[None, :]"


def _spread(name: str, axis: int, rank: int) -> str:
    """A vector along one axis of a tile."""
    if rank == 1:
        return name
    return f"{name}[{', '.join(':' if a == axis else 'None' for a in range(rank))}]"


def _added(place: str, tile: str, rows: str, columns: str) -> str:
    """A tile added to memory, where rows and columns allow it."""
    return f'tl.atomic_add({place}, {tile}, mask={rows}[:, None]{columns}, sem="relaxed")'


def as_float(node: fx.Node) -> str:
    """Halves are computed with as floats."""
    dtype = facts.tensor_of(node).dtype
    return ".to(tl.float32)" if dtype in (torch.float16, torch.bfloat16) else ""

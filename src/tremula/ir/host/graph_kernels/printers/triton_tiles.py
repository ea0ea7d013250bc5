"""Values of a tile of rows, in Triton: loads, gathers, products, element-wise expressions.

Where rows are multiplied by matrices few warps run on a multiprocessor, and nothing hides the
latency of memory: there, one number per row is read a tile ahead.
"""

from dataclasses import dataclass, field
from math import prod

import torch
from torch import fx

from tremula.ir.host.graph_kernels import roles
from tremula.ir.host.graph_kernels.expressions import TRITON, element_wise_text, softplus_function
from tremula.ir.host.graph_kernels.printers.kernel_text import KernelText, no_padding, wrapped
from tremula.ir.host.graph_kernels.roles import (
    ElementWise,
    Gather,
    Product,
    RowReduction,
    RowView,
)
from tremula.ir.host.graph_kernels.statements import Compute

aten = torch.ops.aten

_IMPORTS = '''"""Written by tremula.ir.host.graph_kernels: do not edit."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _rounded(x):
    """To the nearest number of TF32. What is not pure is done once, not by each warp that reads."""
    return tl.inline_asm_elementwise(
        "cvt.rna.tf32.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=False, pack=1
    )


'''
HEADER = f"{_IMPORTS}{softplus_function(TRITON)}\n\n@triton.jit\n"


@dataclass(frozen=True)
class ReadAhead:
    """Names of the rows that follow those of a tile, and of the mask of those that exist."""

    rows: str
    mask: str


@dataclass
class TritonTiles:
    """Prints `Compute` statements. The kernel around it defines `row` and `live`, its mask."""

    text: KernelText
    precision: str  # Triton's name for how float32 products are computed
    ahead: ReadAhead | None = None  # None: nothing is read ahead
    matrices: list[str] = field(default_factory=list)  # names of those that rows are multiplied by

    def columns(self, size: int) -> str:
        return self.text.once("c", f"tl.arange(0, {roles.padded(size)})")

    # -- loads -----------------------------------------------------------------------------------

    def tile(self, node: fx.Node) -> str:
        """The rows of a value: computed before, or loaded here."""
        names = self.text.tiles
        if node not in names and self.ahead is not None and not roles.features_of(node):
            ahead = self.ahead
            load = f"tl.load({self.text.pointer(node)} + {ahead.rows}, mask={ahead.mask}, other=0)"
            self.text.read_ahead(node, load + TRITON.as_float(node))
        elif node not in names:
            names[node] = self._loaded(node, "row", "live", "0")
        return names[node]

    def _loaded(self, node: fx.Node, row: str, mask: str, other: str) -> str:
        offsets, inner = self.offsets(node, row)
        mask = along(mask, 0, len(roles.features_of(node)) + 1) + inner
        load = f"tl.load({self.text.pointer(node)} + {offsets}, mask={mask}, other={other})"
        return self.text.line(load + TRITON.as_float(node))

    def offsets(self, node: fx.Node, row: str) -> tuple[str, str]:
        """The offsets of a tile of rows, and the mask of its features."""
        sizes = roles.features_of(node)
        rank, inner = len(sizes) + 1, ""
        terms = [f"{along(row, 0, rank)} * {prod(sizes)}" if sizes else row]
        for axis, size in enumerate(sizes, 1):
            if size == 1:
                continue
            column = along(self.columns(size), axis, rank)
            step = prod(sizes[axis:])
            terms.append(f"{column} * {step}" if step > 1 else column)
            mask = no_padding(size, column)
            inner += f" & {mask}" if mask else ""
        return " + ".join(terms), inner

    def whole(self, node: fx.Node, rank: int) -> str:
        """A tensor that all rows share, aligned with the features of a tile of that rank."""
        value = roles.tensor_of(node)
        sizes = [n for index, n in enumerate(value.shape) if value.dim() < rank or index]
        terms, masks = ["0"], []
        for index, size in enumerate(sizes):
            if size == 1:
                continue
            column = along(self.columns(size), rank - len(sizes) + index, rank)
            terms.append(f"{column} * {prod(sizes[index + 1 :])}")
            masks.append(no_padding(size, column))
        load = f"tl.load({self.text.pointer(node)} + {' + '.join(terms)}{_masked_by(masks)})"
        return self.text.once("w", load + TRITON.as_float(node))

    def matrix(self, node: fx.Node) -> str:
        """A matrix that rows are multiplied by, loaded once or for each tile."""
        base, is_transposed = roles.base_of_matrix(node)
        n_in, n_out = roles.tensor_of(node).shape
        down, across = (1, n_in) if is_transposed else (n_out, 1)
        k, m = f"{self.columns(n_in)}[:, None]", f"{self.columns(n_out)}[None, :]"
        mask = _masked_by([no_padding(n_in, k), no_padding(n_out, m)])
        load = f"tl.load({self.text.pointer(base)} + {k} * {down} + {m} * {across}{mask})"
        load = self.rounded(load, roles.tensor_of(node).dtype)
        shared = self.text.shared
        if load not in shared:
            name = shared[load] = f"w{len(shared)}"
            self.matrices.append(name)
            self.text.before += ["if HOIST:", f"    {name} = {load}"]
            self.text.inside += ["if not HOIST:", f"    {name} = {load}"]
        return shared[load]

    # -- statements ------------------------------------------------------------------------------

    def compute(self, statement: Compute) -> None:
        node = statement.value
        match statement.role:
            case Gather() as role:
                name = self._gather(role)
            case Product() as role:
                name = self._product(role)
            case ElementWise() as role:
                name = self.text.line(self._element_wise(node, role))
            case RowReduction() as role:
                name = self.text.line(self._reduction(role))
            case RowView() as role:
                name = self._view(node, role.source)
        self.text.tiles[node] = name

    def _gather(self, gather: Gather) -> str:
        """A row outside the table is NaN: the device cannot raise."""
        index, n = self.tile(gather.index), roles.n_rows_of(gather.table)
        if gather.wraps:
            index = self.text.line(wrapped(index, n, "tl"))
        if roles.tensor_of(gather.table).numel() < 2**31:
            index = self.text.line(f"{index}.to(tl.int32)")
        exists = self.text.line(f"live & ({index} >= 0) & ({index} < {n})")
        floats = roles.tensor_of(gather.table).is_floating_point()
        return self._loaded(gather.table, index, exists, 'float("nan")' if floats else "0")

    def _product(self, product: Product) -> str:
        a = self._without_padding(product.source)
        if product.is_wide:
            b, dtype = self.matrix(product.weight), roles.tensor_of(product.weight).dtype
            text = self.dot(self.rounded(a, dtype), b, dtype)
        else:
            text = self._narrow_product(a, product.weight)
        if product.bias is not None:
            text += f" + {self.whole(product.bias, 2)}"
        return self.text.line(text)

    def _narrow_product(self, a: str, weight: fx.Node) -> str:
        n_in, n_out = roles.tensor_of(weight).shape
        size = max(n_in, n_out)
        column = self.columns(size)
        base, _ = roles.base_of_matrix(weight)
        mask = f", mask={column} < {size}, other=0" if roles.padded(size) != size else ""
        load = f"tl.load({self.text.pointer(base)} + {column}{mask}){TRITON.as_float(base)}"
        text = f"{a} * {self.text.once('w', load)}[None, :]"
        return f"tl.sum({text}, 1)[:, None]" if n_out == 1 and n_in > 1 else text

    def dot(self, a: str, b: str, dtype: torch.dtype) -> str:
        if dtype is torch.float32:
            return f'tl.dot({a}, {b}, input_precision="{self.precision}")'
        kind = TRITON.type_name(dtype)
        return f"tl.dot({a}.to({kind}), {b}.to({kind}))"

    def rounded(self, operand: str, dtype: torch.dtype) -> str:
        """To TF32, where that is the precision: the units would truncate, which adds up."""
        rounds = dtype is torch.float32 and self.precision == "tf32"
        return f"_rounded({operand})" if rounds else operand

    def _without_padding(self, node: fx.Node) -> str:
        """A tile that is zero in its padding, which may hold anything and must not enter a sum."""
        tile, size = self.tile(node), roles.features_of(node)[-1]
        if roles.padded(size) == size:
            return tile
        axis = len(roles.features_of(node))
        column = along(self.columns(size), axis, axis + 1)
        return self.text.line(f"tl.where({column} < {size}, {tile}, 0.0)")

    def _element_wise(self, node: fx.Node, role: ElementWise) -> str:
        rank = roles.tensor_of(node).dim()

        def operand(x: fx.Node) -> str:
            return self.tile(x) if x in role.rows else self.whole(x, rank)

        return element_wise_text(node, TRITON, operand)

    def _reduction(self, reduction: RowReduction) -> str:
        sizes = roles.features_of(reduction.source)
        axis, tile = len(sizes), self._without_padding(reduction.source)
        text = f"tl.sum({tile}, {axis})"
        if reduction.kind == "mean":
            text = f"({text} / {sizes[-1]})"
        elif reduction.kind == "norm":
            text = f"tl.sqrt(tl.sum({tile} * {tile}, {axis}))"
        return f"tl.expand_dims({text}, {axis})" if reduction.keeps_dim else text

    def _view(self, node: fx.Node, source: fx.Node) -> str:
        tile = self.tile(source)
        before, after = roles.features_of(source), roles.features_of(node)
        if before == after:
            return tile
        sides = ", ".join(str(roles.padded(n)) for n in after)
        function = "broadcast_to" if node.target is aten.expand.default else "reshape"
        shape = f"[BLOCK, {sides}]" if after else "[BLOCK]"
        return self.text.line(f"tl.{function}({tile}, {shape})")

    # -- operands of sums ------------------------------------------------------------------------

    def live_rows(self, node: fx.Node) -> str:
        """A tile that is zero in rows beyond the last."""
        name = self.tile(node)
        live = along("live", 0, len(roles.features_of(node)) + 1)
        return self.text.line_once(("live", name), lambda: f"tl.where({live}, {name}, 0.0)")

    def flat_live_rows(self, node: fx.Node) -> tuple[str, int]:
        """Live rows with one feature dimension, and its padded size."""
        sizes = roles.features_of(node)
        width, tile = prod(roles.padded(n) for n in sizes), self.live_rows(node)
        if len(sizes) == 1:
            return tile, width
        return self.text.line(f"tl.reshape({tile}, [BLOCK, {width}])"), width

    def flat_columns(self, sizes: tuple[int, ...], width: int) -> tuple[str, str]:
        """Offsets of the features of a flat row in memory, and their mask."""
        column = self.text.once("c", f"tl.arange(0, {width})")
        if prod(sizes) == width:
            return column, ""
        if len(sizes) == 1:
            return column, f" & ({column}[None, :] < {sizes[0]})"
        offsets, masks, inner = [], [], 1
        for axis in reversed(range(len(sizes))):
            digit = f"({column} // {inner} % {roles.padded(sizes[axis])})"
            offsets.append(f"{digit} * {prod(sizes[axis + 1 :])}")
            masks.append(f"({digit} < {sizes[axis]})")
            inner *= roles.padded(sizes[axis])
        offset = self.text.once("c", " + ".join(offsets))
        mask = self.text.once("m", " & ".join(masks))
        return offset, f" & {mask}[None, :]"


def along(name: str, axis: int, rank: int) -> str:
    """A vector along one axis of a tile."""
    if rank == 1:
        return name
    return f"{name}[{', '.join(':' if a == axis else 'None' for a in range(rank))}]"


def _masked_by(conditions: list[str]) -> str:
    """The arguments of a load that reads zero where a condition is false."""
    masks = [condition for condition in conditions if condition]
    return f", mask={' & '.join(masks)}, other=0" if masks else ""

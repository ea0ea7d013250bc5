"""The description of a tile kernel: a list of statements that every printer understands.

A kernel works on one tile of rows after another. For each tile it computes values (`Compute`),
operands first, and writes or adds up results (`KernelOutput`). Rows that a statement takes and that
no statement computes are loaded where they are first used. What a statement does is its role
(`roles.py`); a printer chooses the language and the order:

    Compute(value, Gather | Product | ElementWise | RowReduction | RowView)
    KernelOutput("r0", value, Store | SegmentSum | ColumnSum | OuterSum)
    StageSide(side, output)      an operand of an outer product, put where the units read it
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import fx

from tremula.ir.host.graph_kernels import roles
from tremula.ir.host.graph_kernels.regions import Region
from tremula.ir.host.graph_kernels.roles import Gather, OuterSum, Product, RowRole, SumRole


@dataclass(frozen=True)
class Store:
    """Each row is written to memory."""

    source: fx.Node

    @property
    def rows(self) -> tuple[fx.Node, ...]:
        return (self.source,)


@dataclass(frozen=True)
class Compute:
    """A value of every row of a tile."""

    value: fx.Node
    role: RowRole

    @property
    def product(self) -> Product | None:
        """The product with a matrix that tensor cores do, if it is one."""
        is_wide = isinstance(self.role, Product) and self.role.is_wide
        return self.role if is_wide and isinstance(self.role, Product) else None


@dataclass(frozen=True)
class KernelOutput:
    """A result of the kernel: rows that are stored, or a sum over rows."""

    name: str  # its parameter
    value: fx.Node
    role: Store | SumRole

    @property
    def outer(self) -> OuterSum | None:
        """The sum of outer products that tensor cores do, if it is one."""
        is_wide = isinstance(self.role, OuterSum) and self.role.is_wide
        return self.role if is_wide and isinstance(self.role, OuterSum) else None


@dataclass(frozen=True)
class StageSide:
    """A side of an outer product: it goes to shared memory as soon as it is known."""

    side: fx.Node
    output: KernelOutput
    index: int  # of the sides that a printer stages


Statement = Compute | KernelOutput | StageSide


@dataclass(frozen=True)
class TileKernel:
    """What is done with each tile of rows."""

    region: Region
    computes: tuple[Compute, ...]  # operands first
    outputs: tuple[KernelOutput, ...]  # in the order of the kernel's results

    @property
    def n_rows(self) -> int:
        return self.region.n_rows

    @cached_property
    def products(self) -> list[tuple[fx.Node, Product]]:
        """Wide products with matrices, including sums of outer products over very few rows."""
        wide = [node for node in self.region.nodes if roles.weight_of(node)]
        return [(node, role) for node in wide if (role := roles.product_of(node)) is not None]

    @property
    def has_products(self) -> bool:
        return bool(self.products)

    def computed(self, node: fx.Node) -> Compute | None:
        """The statement that computes a value; None if the kernel reads it."""
        return self._compute_of.get(node)

    @cached_property
    def _compute_of(self) -> dict[fx.Node, Compute]:
        return {each.value: each for each in self.computes}

    def is_early_gather(self, compute: Compute) -> bool:
        """Whether a gather can be started before anything is computed."""
        return isinstance(compute.role, Gather) and compute.role.index not in self.region.nodes

    def computed_operands(self, compute: Compute) -> list[Compute]:
        """The statements that a value waits for."""
        return [x for row in compute.role.rows if (x := self.computed(row)) is not None]


def describe(region: Region) -> TileKernel:
    """The statements of a kernel."""
    computes, outputs = [], []
    for node in region.nodes:
        role = roles.row_role_of(node, region.n_rows)
        if role is not None:
            computes.append(Compute(node, role))
    for index, node in enumerate(region.results):
        is_row_wise = roles.row_role_of(node, region.n_rows) is not None
        role = Store(node) if is_row_wise else roles.sum_role_of(node)
        assert role is not None, f"{node} is neither rows nor a sum of rows"
        outputs.append(KernelOutput(f"r{index}", node, role))
    return TileKernel(region, tuple(computes), tuple(outputs))


# -- the order of statements -----------------------------------------------------------------------


def in_order(kernel: TileKernel) -> list[Statement]:
    """Everything is computed before the first result leaves; early gathers come first."""
    reorders = kernel.has_products  # else many warps hide the latency of gathers
    first = [each for each in kernel.computes if reorders and kernel.is_early_gather(each)]
    return [*first, *(each for each in kernel.computes if each not in first), *kernel.outputs]


def waits_for_gathers(kernel: TileKernel, compute: Compute) -> int:
    """0 for gathers that start first, 1 for what needs no gather, 2 for what does."""
    if kernel.is_early_gather(compute):
        return 0
    return 2 if _needs_gather(kernel, compute, set()) else 1


def _needs_gather(kernel: TileKernel, compute: Compute, seen: set[fx.Node]) -> bool:
    if compute.value in seen:
        return False
    seen.add(compute.value)
    operands = kernel.computed_operands(compute)
    return isinstance(compute.role, Gather) or any(_needs_gather(kernel, x, seen) for x in operands)


def outputs_as_soon_as_known(
    computes: Sequence[Compute],
    outputs: Sequence[KernelOutput],
    staged_sides: Callable[[OuterSum], Sequence[fx.Node]],
    *,
    is_async: bool,
) -> Iterator[Statement]:
    """Results leave, and sides of outer products are staged, once their operands are known.

    `is_async`: a product only runs at first, and is known when a statement has waited for it.
    """
    computed = {compute.value for compute in computes}
    known: set[fx.Node] = set()
    pending = list(outputs)
    for compute in computes:
        yield compute
        known.update(compute.role.rows)
        if not (is_async and compute.product is not None):
            known.add(compute.value)
        yield from _staged(pending, known, staged_sides)
        for output in [each for each in pending if _is_known(each, known, computed)]:
            yield output
            known.update(output.role.rows)
            pending.remove(output)
    yield from pending


def _is_known(output: KernelOutput, known: set[fx.Node], computed: set[fx.Node]) -> bool:
    return all(x in known or x not in computed for x in output.role.rows)


def _staged(
    pending: list[KernelOutput],
    known: set[fx.Node],
    staged_sides: Callable[[OuterSum], Sequence[fx.Node]],
) -> Iterator[StageSide]:
    for output in pending:
        sides = staged_sides(output.outer) if output.outer is not None else ()
        for index, side in enumerate(sides):
            if side in known:
                yield StageSide(side, output, index)

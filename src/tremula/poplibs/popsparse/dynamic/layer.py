"""Layers and products with a sparse matrix whose pattern the host gives at run time.

Every tile holds a bucket. In a product, *distribution* comes first: each tile works on all buckets
of its sub-group. Pieces that found no room there lie in others' buckets; as far as the overflow
words say, *propagation* lets all buckets move on, tile by tile along y and then x, and each tile
takes what is its own. For gradients of values the dense operands travel, and buckets stay.
"""

from dataclasses import dataclass
from typing import Unpack

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, INT, UNSIGNED_SHORT, Type, as_type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.runs import Runs
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.popops import cast, zero
from tremula.poplibs.popops.elementwise.fill import zero_by_vertices
from tremula.poplibs.popsparse.dynamic import codelets, costs
from tremula.poplibs.popsparse.dynamic.buckets import (
    BucketRing,
    Buckets,
    SparseTensor,
    TileCoordinates,
    buffer_like,
    of_group,
)
from tremula.poplibs.popsparse.dynamic.meta_info import n_overflow_words
from tremula.poplibs.popsparse.dynamic.params import (
    DynamicOptions,
    FullyConnectedParams,
    MatMulParams,
    layer_of,
    plan_of,
)
from tremula.poplibs.popsparse.dynamic.partitioner import KnownPattern
from tremula.poplibs.popsparse.dynamic.plan import DynamicPlan
from tremula.poplibs.popsparse.dynamic.worker_split import split_between_workers
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.static import codelets as static_codelets
from tremula.poplibs.popsparse.static.costs import block_grad_w_cycles, element_grad_w_slots
from tremula.poplibs.popsparse.static.operands import (
    create_dense,
    pieces_of,
    stored_blocks,
    view_of,
)
from tremula.poplibs.popsparse.static.vertices import add_up
from tremula.poplibs.poputil.steps import run_vertices

Ints = np.ndarray


def create_fully_connected_weights(
    graph: Graph, type: Type | str, params: FullyConnectedParams | MatMulParams,
    name: str = "weights", **options: Unpack[DynamicOptions],
) -> SparseTensor:  # fmt: skip
    """Room for a matrix [outputs, inputs] of any pattern with at most n non-zeros."""
    plan = plan_of(params, type, graph.target.chip, graph.target.n_tiles, options)
    places, n_head = TileCoordinates.of(plan), n_overflow_words(plan)
    element = plan.problem.element
    words = graph.add_variable(
        UNSIGNED_SHORT, [n_head + plan.n_tiles * plan.n_meta], f"{name}/metaInfo"
    )
    values = graph.add_variable(element, [plan.n_tiles * plan.n_values], f"{name}/nzValues")
    graph.set_tile_mapping(words.slice(0, n_head, 0), 0)
    for tensor, size in (
        (words.slice(n_head, len(words), 0), plan.n_meta),
        (values, plan.n_values),
    ):
        begin = np.arange(plan.n_tiles) * size
        mapping = TileMapping(begin, begin + size, places.tile, graph.target.n_tiles)
        if size:
            graph.set_tile_mapping(tensor, mapping)
    return SparseTensor(words, values, plan)


create_sparse_dense_mat_mul_lhs = create_fully_connected_weights


def create_fully_connected_input(
    graph: Graph, type: Type | str, params: FullyConnectedParams, name: str = "input"
) -> Tensor:
    """A batch of inputs [batch, inputs], laid out for the layer."""
    layer = layer_of(params)
    stored = create_dense(graph, as_type(type), layer.n_in, layer.n_batch, layer.side, name)
    return view_of(stored).transpose()


def create_sparse_dense_mat_mul_rhs(
    graph: Graph, type: Type | str, params: MatMulParams, name: str = "rhs"
) -> Tensor:
    """The dense operand [k, n], laid out for the product."""
    return create_fully_connected_input(graph, type, params.layer, name).transpose()


# -- products -------------------------------------------------------------------------------------


def fully_connected_fwd(
    graph: Graph, weights: SparseTensor, acts: Tensor, sequence: Sequence, name: str = "sparseFwd"
) -> Tensor:
    """The layer's outputs [batch, outputs] for inputs [batch, inputs]."""
    p = weights.plan.problem
    _check(weights, acts, (p.n_batch, p.n_in), "inputs")
    return _product(graph, weights, acts.transpose(), sequence, name).transpose()


def fully_connected_grad_a(
    graph: Graph, weights: SparseTensor, gradient: Tensor, sequence: Sequence,
    name: str = "sparseGradA",
) -> Tensor:  # fmt: skip
    """The gradient [batch, inputs] of a layer's inputs from that of its outputs."""
    p = weights.plan.problem
    _check(weights, gradient, (p.n_batch, p.n_out), "gradients")
    back = _product(graph, weights, gradient.transpose(), sequence, name, is_gradient=True)
    return back.transpose()


def sparse_dense_mat_mul(
    graph: Graph, lhs: SparseTensor, rhs: Tensor, sequence: Sequence, *,
    transpose_lhs: bool = False, transpose_rhs: bool = False, known: KnownPattern | None = None,
    name: str = "sparseMatMul",
) -> Tensor:  # fmt: skip
    """Sparse [m, k] by dense [k, n]; transposed, it takes [m, n] to [k, n].

    A dense operand to be transposed is [n, k], or [n, m].

    With a `known` pattern the steps of propagation and the cycles are that pattern's, for
    forecasts; without, cycles are those of a uniform one.
    """
    p = lhs.plan.problem
    rhs = rhs.transpose() if transpose_rhs else rhs
    n_rows = p.n_out if transpose_lhs else p.n_in
    _check(lhs, rhs, (n_rows, p.n_batch), "a dense operand")
    return _product(graph, lhs, rhs, sequence, name, is_gradient=transpose_lhs, known=known)


def fully_connected_sparse_grad_w(
    graph: Graph, weights: SparseTensor, gradient: Tensor, acts: Tensor, sequence: Sequence,
    name: str = "sparseGradW",
) -> Tensor:  # fmt: skip
    """The gradient of the values, in the order of the buckets."""
    p = weights.plan.problem
    _check(weights, acts, (p.n_batch, p.n_in), "inputs")
    _check(weights, gradient, (p.n_batch, p.n_out), "gradients")
    if not p.with_grad_w:
        raise SparsityError(
            "weights that were made without do_grad_w_pass have no gradient of values.",
            source=user_source(),
            hint="create them with do_grad_w_pass=True",
        )
    dense = stored_blocks(graph, acts.transpose(), p.side, sequence, name)
    grads = stored_blocks(graph, gradient.transpose(), p.side, sequence, f"{name}/gradient")
    return _GradW(graph, weights, name).add(dense, grads, sequence)


def _check(weights: SparseTensor, dense: Tensor, shape: tuple[int, int], what: str) -> None:
    p = weights.plan.problem
    if dense.shape != shape or dense.type != p.element:
        raise SparsityError(
            f"a sparse layer of {p.element} got {what} of {dense.type} {list(dense.shape)}, "
            f"expected {p.element} {list(shape)}.",
            source=user_source(),
            hint="give what its params say",
        )


def _product(
    graph: Graph, weights: SparseTensor, dense: Tensor, sequence: Sequence, name: str, *,
    is_gradient: bool = False, known: KnownPattern | None = None,
) -> Tensor:  # fmt: skip
    """[rows, n] to [outputs, n], or with the transposed matrix back."""
    p = weights.plan.problem
    flat = stored_blocks(graph, dense, p.side, sequence, name)
    n_out = p.n_in if is_gradient else p.n_out
    out = create_dense(graph, p.element, n_out, p.n_batch, p.side, f"{name}/out")
    _Product(graph, weights, name, is_gradient, known).add(flat, out.flatten(), sequence)
    return view_of(out)


@dataclass(frozen=True)
class _Product:
    """One product with the matrix, or with its transpose."""

    graph: Graph
    weights: SparseTensor
    name: str
    is_gradient: bool
    known: KnownPattern | None = None

    @property
    def plan(self) -> DynamicPlan:
        return self.weights.plan

    def add(self, dense: Tensor, out: Tensor, sequence: Sequence) -> None:
        plan, p = self.plan, self.plan.problem
        buckets = Buckets.of(self.weights)
        if self.is_gradient and p.side > 1:
            buckets = self._turned(buckets, sequence)
        own_rows = self._arranged(dense, sequence)
        partials = self._partials(sequence)
        self._compute(buckets, own_rows, partials, sequence, n_own=plan.z)
        steps = Sequence()
        ring = BucketRing(self.graph, self.weights, [buckets.words, buckets.values], 1, self.name)
        if plan.x * plan.y > 1:
            moved = Buckets(ring.buffers[0], ring.buffers[1])
            self._compute(moved, own_rows, partials, steps, n_own=0)
        ring.add(steps, sequence, self.known.ends if self.known else None)
        self._reduce(partials, out, sequence)

    def _rows(self, *, is_out: bool) -> tuple[Ints, Ints]:
        """(first, number) of the rows of blocks that each tile reads or writes."""
        plan, p, places = self.plan, self.plan.problem, TileCoordinates.of(self.plan)
        is_x = is_out != self.is_gradient
        part, size, n = (places.x, plan.tile_x, p.n_x) if is_x else (places.y, plan.tile_y, p.n_y)
        first = np.minimum(part * size, n)
        return first, np.minimum(first + size, n) - first

    def _partials(self, sequence: Sequence) -> Tensor:
        plan, p = self.plan, self.plan.problem
        sizes = self._rows(is_out=True)[1] * plan.tile_z * p.side
        partials = self._on_tiles(p.partials, sizes, "partials")
        zero_by_vertices(self.graph, partials, sequence, f"{self.name}/zero")
        return partials

    def _turned(self, buckets: Buckets, sequence: Sequence) -> Buckets:
        """Each tile transposes the blocks of its bucket."""
        plan, p = self.plan, self.plan.problem
        turned = buffer_like(self.graph, buckets.values, plan, f"{self.name}/turned")
        begin = np.arange(plan.n_tiles) * plan.n_values
        source = np.tile(np.arange(plan.n_values // p.area, dtype=np.int32), (plan.n_tiles, 1))
        fields = {
            "values": Slices(buckets.values.flatten(), begin, begin + plan.n_values),
            "out": Slices(turned.flatten(), begin, begin + plan.n_values),
            "source": source,
            "side": p.side,
        }
        codelet = static_codelets.transpose_blocks(p.element)
        tiles = TileCoordinates.of(plan).tile
        if plan.n_values:
            run_vertices(self.graph, codelet, fields, tiles, sequence, f"{self.name}/turn")
        return Buckets(buckets.words, turned)

    def _compute(
        self, buckets: Buckets, dense: Slices, partials: Tensor, sequence: Sequence, n_own: int
    ) -> None:
        """Every tile goes through the buckets of the z tiles of its place."""
        plan, p, places = self.plan, self.plan.problem, TileCoordinates.of(self.plan)
        sizes = self._rows(is_out=True)[1] * plan.tile_z * p.side
        ends = np.cumsum(sizes)
        group = np.arange(plan.n_tiles) // plan.z
        fields = {
            "words": of_group(buckets.words, group, plan.z),
            "values": of_group(buckets.values, group, plan.z),
            "dense": dense,
            "partials": Slices(partials, ends - sizes, ends),
            "sub_group": group + 1,
            "n_buckets": plan.z,
            "n_columns": plan.tile_z,
            "is_transposed": int(self.is_gradient),
            "planned_cycles": self._cycles(n_own),
            "planned_flops": 2 * -(-p.n_values * p.area // plan.n_tiles) * p.n_batch
            if n_own
            else 0,
        }
        codelet = codelets.element_product(p.element)
        if p.side > 1:
            codelet = codelets.block_product(p.element, p.partials)
            fields["side"] = p.side
        run_vertices(self.graph, codelet, fields, places.tile, sequence, f"{self.name}/multiply")

    def _arranged(self, dense: Tensor, sequence: Sequence) -> Slices:
        """A tile's rows of the dense operand, within its columns, copied there.

        PopLibs copies them once, before the distribution, and holds on to them, so that
        propagation does not exchange them again (`fullyConnectedImpl`, FullyConnected.cpp).
        """
        plan, p, places = self.plan, self.plan.problem, TileCoordinates.of(self.plan)
        first, count = self._rows(is_out=False)
        tile = np.repeat(np.arange(plan.n_tiles), count)
        ends = np.cumsum(count)
        row = first[tile] + np.arange(len(tile)) - (ends - count)[tile]
        width = plan.tile_z * p.side
        begin = row * p.n_batch * p.side + places.z[tile] * width + dense.offset
        full = np.full(len(row), width)
        view = pieces_of(dense, Runs(begin, full, np.ones_like(full)))
        own = self._on_tiles(p.element, count * width, "operand")
        sequence.add(Copy(view, own))
        return Slices(own, (ends - count) * width, ends * width)

    def _on_tiles(self, type: Type, sizes: Ints, name: str) -> Tensor:
        """A new flat tensor: of each tile of the plan this many elements."""
        ends = np.cumsum(sizes)
        result = self.graph.add_variable(type, [int(ends[-1])], f"{self.name}/{name}")
        tiles, is_filled = TileCoordinates.of(self.plan).tile, sizes > 0
        mapping = TileMapping(
            (ends - sizes)[is_filled], ends[is_filled], tiles[is_filled], self.graph.target.n_tiles
        )
        self.graph.set_tile_mapping(result, mapping)
        return result

    def _cycles(self, n_own: int) -> Ints | int:
        """Cycles of each tile: of a known pattern, or what the planner expects."""
        if self.known is None or not n_own or self.is_gradient:
            return self._planned_cycles(n_own)
        plan, p = self.plan, self.plan.problem
        n_workers = self.graph.target.chip.n_workers
        search = costs.SearchCost(plan.z, n_own, 1)
        rows, blocks = self.known.rows, self.known.blocks
        if p.side > 1:
            z = ceil_div(plan.tile_z, n_workers)
            types = p.element, p.partials
            n_rows, n_started = rows.sum(1), (blocks > 0).sum(1)
            result = costs.block_cycles(
                n_rows, blocks.sum(1), z, p.side, types, search, n_workers
            ) + costs.block_start_cycles(n_rows, n_started, p.side, types, n_workers)
        else:  # of each bucket, all wait for the worker that has most to do
            n_rows, n_values, n_columns = np.moveaxis(self.known.loads, -1, 0)
            slots = costs.element_slots(n_rows, n_values, n_columns, p.element)
            worker = slots.max(axis=2).sum(axis=1)
            result = costs.element_supervisor("forward", search) + n_workers * worker
        return np.repeat(result, plan.z)

    def _planned_cycles(self, n_own: int) -> int:
        """What a uniform pattern takes; with 0 own buckets vertices do no more than look."""
        plan, p = self.plan, self.plan.problem
        n_workers = self.graph.target.chip.n_workers
        search = costs.SearchCost(plan.z, n_own, 1)
        rows, blocks = plan.rows_per_tile, plan.rows_per_tile * plan.blocks_per_row
        if not n_own:
            rows = blocks = 0
        if p.side > 1:
            z = ceil_div(plan.tile_z, n_workers)
            types = p.element, p.partials
            back, n_started = self.is_gradient, min(blocks, plan.z)
            cycles = costs.block_cycles(
                rows, blocks, z, p.side, types, search, n_workers, is_gradient=back
            )
            return int(cycles) + int(
                costs.block_start_cycles(
                    rows, n_started, p.side, types, n_workers, is_gradient=back
                )
            )
        kind = "transpose" if self.is_gradient else "forward"
        supervisor = int(costs.element_supervisor(kind, search))
        if not n_own:
            return supervisor
        if self.is_gradient:
            share = ceil_div(rows, n_workers)
            worker = costs.transpose_worker(plan.blocks_per_row, share, plan.tile_z, p.element)
            return supervisor + n_workers * int(worker)
        parts = split_between_workers(rows, plan.tile_z // p.z_grain, n_workers)
        sizes = {(r1 - r0, (c1 - c0) * p.z_grain) for r0, r1, c0, c1 in parts}
        slots = [
            int(costs.element_slots(r, r * plan.blocks_per_row, z, p.element)) for r, z in sizes
        ]
        return supervisor + n_workers * max(slots, default=0)

    def _reduce(self, partials: Tensor, out: Tensor, sequence: Sequence) -> None:
        """Sums over the partitions of the inner dimension, where the result lies."""
        plan, p, places = self.plan, self.plan.problem, TileCoordinates.of(self.plan)
        first, count = self._rows(is_out=True)
        tile = np.repeat(np.arange(plan.n_tiles), count)
        ends = np.cumsum(count)
        within = np.arange(len(tile)) - (ends - count)[tile]
        width = plan.tile_z * p.side
        place = (first[tile] + within) * p.n_batch * p.side + places.z[tile] * width
        begin = np.arange(len(tile)) * width
        n_rows = out.n_elems // (p.n_batch * p.side)
        stretches = np.arange(n_rows * plan.z) * width
        add_up(self.graph, partials, begin, place, out, stretches, sequence, f"{self.name}/reduce")


@dataclass(frozen=True)
class _GradW:
    """Gradients of values: buckets stay, operands of all sub-groups that have pieces here come."""

    graph: Graph
    weights: SparseTensor
    name: str

    def add(self, dense: Tensor, gradient: Tensor, sequence: Sequence) -> Tensor:
        """The gradient of the values, like them."""
        graph, plan = self.graph, self.weights.plan
        p = plan.problem
        shape = [plan.x, plan.y, plan.z, plan.n_values]
        total = graph.add_variable(FLOAT, shape, f"{self.name}/total")
        begin = np.arange(plan.n_tiles) * plan.n_values
        tiles = TileCoordinates.of(plan).tile
        mapping = TileMapping(begin, begin + plan.n_values, tiles, graph.target.n_tiles)
        graph.set_tile_mapping(total, mapping)
        zero_by_vertices(graph, total, sequence, f"{self.name}/zero")
        own = self._operands(dense, gradient, sequence)
        self._compute(own, total, sequence)
        if plan.x * plan.y > 1:
            ring = BucketRing(graph, self.weights, own, -1, self.name)
            steps = Sequence()
            self._compute(ring.buffers, total, steps)
            ring.add(steps, sequence)
        if p.element is FLOAT:
            return total.flatten()
        return cast(graph, total.flatten(), p.element, sequence, f"{self.name}/cast")

    def _operands(self, dense: Tensor, gradient: Tensor, sequence: Sequence) -> list[Tensor]:
        """[x, y, z, …]: rows of both operands for each place, and the place's sub-group."""
        plan, p = self.weights.plan, self.weights.plan.problem
        shape, row = (plan.x, plan.y, plan.z), p.n_batch * p.side
        result = []
        for flat, part, size, n in (
            (dense, TileCoordinates.of(plan).y, plan.tile_y, p.n_y),
            (gradient, TileCoordinates.of(plan).x, plan.tile_x, p.n_x),
        ):
            like = self.graph.add_variable(p.element, [*shape, size * row], f"{self.name}/operand")
            begin = np.arange(plan.n_tiles) * size * row
            tiles = TileCoordinates.of(plan).tile
            mapping = TileMapping(begin, begin + size * row, tiles, self.graph.target.n_tiles)
            self.graph.set_tile_mapping(like, mapping)
            first = np.minimum(part * size, n)
            count = (np.minimum(first + size, n) - first) * row
            if bool((count < size * row).any()):
                zero(self.graph, like, sequence, f"{self.name}/pad")
            ones = np.ones_like(count)
            source = pieces_of(flat, Runs(first * row + flat.offset, count, ones))
            whole = like.flatten()
            target = pieces_of(whole, Runs(begin + whole.offset, count, ones))
            sequence.add(Copy(source, target))
            result.append(like)
        numbers = np.arange(plan.n_tiles) // plan.z + 1
        group = self.graph.add_constant(INT, [*shape, 1], numbers, f"{self.name}/group")
        at = np.arange(plan.n_tiles)
        mapping = TileMapping(at, at + 1, TileCoordinates.of(plan).tile, self.graph.target.n_tiles)
        self.graph.set_tile_mapping(group, mapping)
        return [*result, group]

    def _compute(self, operands: list[Tensor], total: Tensor, sequence: Sequence) -> None:
        plan, p = self.weights.plan, self.weights.plan.problem
        at = np.arange(plan.n_tiles)

        def each(tensor: Tensor) -> Slices:
            size = tensor.shape[3]
            return Slices(tensor.flatten(), at * size, (at + 1) * size)

        fields = {
            "words": each(Buckets.of(self.weights).words),
            "dense": each(operands[0]),
            "gradient": each(operands[1]),
            "visiting": each(operands[2]),
            "out": each(total),
            "n_columns": p.n_batch,
            "n_planned_columns": plan.tile_z,
            "side": p.side,
            "planned_cycles": self._planned_cycles(),
            "planned_flops": 2 * -(-p.n_values * p.area // plan.n_tiles) * p.n_batch,
        }
        codelet = codelets.values_gradient(p.element)
        tiles = TileCoordinates.of(plan).tile
        run_vertices(self.graph, codelet, fields, tiles, sequence, f"{self.name}/multiply")

    def _planned_cycles(self) -> int:
        plan, p = self.weights.plan, self.weights.plan.problem
        n_workers = self.graph.target.chip.n_workers
        blocks = ceil_div(plan.n_values // p.area, n_workers)
        rows = ceil_div(plan.rows_per_tile, plan.z)
        if p.side == 1:
            worker = element_grad_w_slots(rows, blocks, p.n_batch, p.element)
        else:
            worker = block_grad_w_cycles(rows, blocks, p.n_batch, p.side, p.element)
        return int(costs.grad_w_supervisor(costs.SearchCost()) + n_workers * worker)

"""From a plan to columns: what every vertex of a product reads, writes and does. No graph yet.

A plan cuts each dimension of a product into parts: groups g, batch b, field o0, o1, …, kernel k0,
k1, …, input channels i and output channels c. A vertex has one part of each; vertices are numbered
in the order of `Partition.tile_order` and lie on the tile of their number. For a product
[4, 6] · [6, 2] with o0 in 2 parts and i in 3 there are six:

    tile         0     1     2     3     4     5
    part of i    0     0     1     1     2     2
    part of o0   0     1     0     1     0     1

An operand is stored as *blocks*, one for each combination of the parts of its dimensions.
Vertices that differ in other dimensions alone share a block; they are its *users*, and each holds
an equal piece of it between products (`spread_over_users`):

    left   [o0, i]   block (1, 2)   is used by tile 5 alone
    right  [i, c]    block (2, 0)   by tiles 4 and 5
    result [o0, c]   block (1, 0)   by tiles 1, 3 and 5: each has a partial result of it

With more than one user of a result's block, vertices write partial results, and stages of a
reduction add them up on those same tiles, each tile its piece:

    tiles 1 3 5 ── partials of block (1, 0) ──► three pieces of the sum, on tiles 1, 3 and 5

With many users (16 and more, PopLibs' rule) a stage before that adds up groups of them.

Serial steps have parts of the output channels, one after the other. Each is reduced before the next
begins, so a tile holds the partial results of one step.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import numpy as np

from tremula.poplar.tensors.runs import Runs
from tremula.poplibs.poplin.product.blocks import (
    OperandBlocks,
    Spread,
    box_runs,
    spread_over_users,
    spread_together,
)
from tremula.poplibs.poplin.product.methods import METHODS, Work, amp_units, seen_by_method
from tremula.poplibs.poplin.product.plan import ProductPlan
from tremula.poplibs.poplin.product.transpose_operand import TilesOfParts
from tremula.poplibs.poplin.product.worklists import (
    WorklistShape,
    forward_worklist,
    update_worklist,
)

Ints = np.ndarray


# PopLibs (poplin/Convolution.cpp, mapActivationsOrWeights) gives a tile no less than this of an
# operand, in whole groups of channels, "to reduce the amount of exchange code".
LEAST_LEFT_BYTES, LEAST_RIGHT_BYTES = 128, 256
ROWS_OF_USER = 4  # and more: then whole rows leave parts nearly equal


def channels_together(plan: ProductPlan) -> tuple[int, int]:
    """(input, output) channels of a group, which stay together on a tile."""
    if METHODS[plan.method].is_on_matrix_unit:
        return amp_units(plan.chip, plan.problem.type, plan.partials)
    return plan.in_grain, plan.out_grain


@dataclass(frozen=True)
class Reading:
    """What vertices read of an operand: vertex v reads [begin[v], end[v]) of the runs' elements.

    Without runs these are places in the variable itself.
    """

    runs: Runs | None
    begin: Ints
    end: Ints


@dataclass(frozen=True)
class ReductionStage:
    """One compute set of a reduction: parts[start[v] : start[v + 1]] are added up to out."""

    tile: Ints
    start: Ints
    part_begin: Ints
    part_end: Ints
    out_begin: Ints
    out_end: Ints


@dataclass(frozen=True)
class PartialsReduction:
    """How the partial results of one serial step are added up."""

    partials_map: Spread
    stages: tuple[ReductionStage, ...]
    stage_maps: tuple[Spread, ...]  # of what all stages but the last write


@dataclass(frozen=True)
class Columns:
    """Everything about the vertices of a plan that depends on the plan alone."""

    left: Reading
    right: Reading
    out_begin: Ints
    out_end: Ints
    tile: Ints
    step: Ints
    state: dict[str, Ints]
    left_map: Spread
    right_map: Spread
    left_parts: TilesOfParts
    right_parts: TilesOfParts
    result_map: Spread
    reductions: tuple[
        PartialsReduction, ...
    ]  # of each step; none: vertices write the result itself


def columns_of(plan: ProductPlan) -> Columns:
    columns = _Maker(plan).columns()
    return _moved(plan, columns) if plan.start_tile or plan.goes_down else columns


def _moved(plan: ProductPlan, columns: Columns) -> Columns:
    """Columns that begin at tile 0, with all of them moved to where a plan begins."""

    def tile(tiles: Ints) -> Ints:
        moved = (tiles + plan.start_tile) % plan.n_tiles
        return plan.n_tiles - 1 - moved if plan.goes_down else moved

    def spread(one: Spread) -> Spread:
        return one._replace(tile=tile(one.tile))

    reductions = tuple(
        PartialsReduction(
            spread(one.partials_map),
            tuple(replace(stage, tile=tile(stage.tile)) for stage in one.stages),
            tuple(map(spread, one.stage_maps)),
        )
        for one in columns.reductions
    )
    return replace(
        columns,
        tile=tile(columns.tile),
        left_map=spread(columns.left_map),
        right_map=spread(columns.right_map),
        left_parts=TilesOfParts(tile(columns.left_parts.tiles)),
        right_parts=TilesOfParts(tile(columns.right_parts.tiles)),
        result_map=spread(columns.result_map),
        reductions=reductions,
    )


class _Maker:
    """Makes the columns of a plan; an operand is identified by its dimensions."""

    def __init__(self, plan: ProductPlan) -> None:
        self.plan, self.partition = plan, plan.partition
        self.at = plan.partition.coordinates
        n_dims = len(plan.problem.fields)
        self.o = [f"o{d}" for d in range(n_dims)]
        self.k = [f"k{d}" for d in range(n_dims)]
        self.acts_dims = ["g", "b", *self.o, "i"]
        self.weights_dims = ["g", *self.k, "i", "c"]
        self.out_dims = ["g", "b", *self.o, "c"]

    def columns(self) -> Columns:
        plan, part = self.plan, self.partition
        # A weight update multiplies inputs by output gradients; its result has the weights' form.
        right, result = (part.weights_blocks, self.weights_dims), (part.out_blocks, self.out_dims)
        if plan.problem.is_update:
            right, result = result, right
        (right_blocks, right_dims), (result_blocks, result_dims) = right, result
        n_in, n_out = channels_together(plan)
        users = self.users(result_dims)
        result_start, result_size = result_blocks.starts().ravel(), result_blocks.sizes().ravel()
        partials = self._partials(result_blocks, result_dims)
        left_map = self._spread(part.acts_blocks, self.acts_dims, n_in, LEAST_LEFT_BYTES)
        right_map = self._spread(right_blocks, right_dims, n_in * n_out, LEAST_RIGHT_BYTES)
        return Columns(
            left=self._left(),
            right=self._blocks_read(right_blocks, right_dims),
            out_begin=partials[0],
            out_end=partials[0] + partials[1],
            tile=self.at["tile"],
            step=self.at["step"],
            state=self._state(),
            left_map=left_map,
            right_map=right_map,
            left_parts=TilesOfParts(_tiles_of_parts(part.acts_blocks, left_map)),
            right_parts=TilesOfParts(_tiles_of_parts(right_blocks, right_map)),
            result_map=spread_over_users(
                result_start, result_size, users, self._result_grain(result_blocks, users)
            ),
            reductions=self._reductions(partials, result_blocks, result_dims),
        )

    def users(self, dims: list[str]) -> Ints:
        """int64[n_blocks, n_users]: the tiles that use each block of an operand."""
        part, s = self.partition, self.plan.splits
        order = part.tile_order
        radix = dict(zip(order, _radix([part.n_parts(n) for n in order]), strict=True))
        axes = []
        for name in dims:
            n_parallel = part.n_parts(name)
            n_serial = s.c_serial if name == "c" else 1
            axes.append(np.tile(np.arange(n_parallel), n_serial) * radix[name])
        others = [np.arange(part.n_parts(n)) * radix[n] for n in order if n not in dims]
        base = _sums(axes)
        return base[:, None] + _sums(others)[None, :]

    def _spread(
        self, blocks: OperandBlocks, dims: list[str], n_together: int, n_least_bytes: int
    ) -> Spread:
        """The map of an operand, whose groups of n_together elements stay whole."""
        element = self.plan.problem.type
        grain: Ints | int = max(n_together, self.plan.chip.vector_width(element))
        start, size, users = blocks.starts().ravel(), blocks.sizes().ravel(), self.users(dims)
        if dims == self.acts_dims:
            grain = _whole_rows(blocks, users, grain)
        n_least = -(-n_least_bytes // element.n_bytes)
        return spread_together(start, size, users, grain, n_least)

    def _result_grain(self, blocks: OperandBlocks, users: Ints) -> Ints | int:
        """What stays together of a result: the channels of a group.

        As in PopLibs' reductions, also of weight updates (ConvReduce.cpp, partialGroupedReduce).
        """
        plan = self.plan
        grain = max(channels_together(plan)[1], plan.chip.vector_width(plan.problem.out_type))
        return grain if plan.problem.is_update else _whole_rows(blocks, users, grain)

    def _block_index(self, blocks: OperandBlocks, dims: list[str]) -> Ints:
        return np.ravel_multi_index([self.at[name] for name in dims], blocks.n_blocks)

    def _blocks_read(self, blocks: OperandBlocks, dims: list[str]) -> Reading:
        index = self._block_index(blocks, dims)
        begin = blocks.starts().ravel()[index]
        return Reading(None, begin, begin + blocks.sizes().ravel()[index])

    def _left(self) -> Reading:
        """Boxes of inputs; those with a halo are several pieces of the variable."""
        part = self.partition
        dims = ["g", "b", *self.o, *self.k, "i"]
        n_parts = [len(part.cuts(name)) - 1 for name in dims]
        index = np.ravel_multi_index([self.at[name] for name in dims], n_parts)
        box = dict(zip(dims, np.unravel_index(np.arange(prod(n_parts)), n_parts), strict=True))
        low, high = [], []
        for name in ("g", "b"):
            low.append(part.cuts(name)[box[name]])
            high.append(part.cuts(name)[box[name] + 1])
        for pairings, o, k in zip(part.pairings, self.o, self.k, strict=True):
            low.append(np.array([[p.low for p in row] for row in pairings])[box[o], box[k]])
            high.append(np.array([[p.high for p in row] for row in pairings])[box[o], box[k]])
        low.append(part.cuts("i")[box["i"]])
        high.append(part.cuts("i")[box["i"] + 1])
        runs, end = box_runs(part.acts_blocks, low, high)
        size = np.diff(end, prepend=0)
        if len(runs.start) == len(end) and bool((size > 0).all()):
            return Reading(None, runs.start[index], (runs.start + runs.count)[index])
        return Reading(runs, (end - size)[index], end[index])

    def _partials(self, blocks: OperandBlocks, dims: list[str]) -> tuple[Ints, Ints]:
        """(begin, size) of what each vertex writes: of the result, or of its step's partials."""
        index = self._block_index(blocks, dims)
        size = blocks.sizes().ravel()[index]
        if self.plan.writes_result:
            return blocks.starts().ravel()[index], size
        of_step = size.reshape(self.plan.splits.c_serial, -1)
        return (np.cumsum(of_step, axis=1) - of_step).ravel(), size

    def _reductions(
        self, partials: tuple[Ints, Ints], blocks: OperandBlocks, dims: list[str]
    ) -> tuple[PartialsReduction, ...]:
        if self.plan.writes_result:
            return ()
        s, users = self.plan.splits, self.users(dims)
        start, size = blocks.starts().ravel(), blocks.sizes().ravel()
        c_part = np.unravel_index(np.arange(len(users)), blocks.n_blocks)[dims.index("c")]
        result = []
        for step in range(s.c_serial):
            rows = slice(step * s.n_tiles, (step + 1) * s.n_tiles)
            begin, end = partials[0][rows], partials[0][rows] + partials[1][rows]
            chosen = np.flatnonzero(c_part // s.c == step)
            grain = np.broadcast_to(self._result_grain(blocks, users), size.shape)
            adder = _Adder(self.plan, users[chosen], start[chosen], size[chosen], grain[chosen])
            stages, maps = adder.stages(begin[users[chosen]])
            result.append(PartialsReduction(Spread(begin, end, np.arange(s.n_tiles)), stages, maps))
        return tuple(result)

    # -- what each vertex does

    def _state(self) -> dict[str, Ints]:
        part, problem = self.partition, self.plan.problem
        sizes = {name: part.sizes(name) for name in (*self.out_dims, *self.k, "i")}
        shape_of_vertex, shapes = self._shapes()
        make = update_worklist if problem.is_update else forward_worklist
        lists = [make(shape, self.plan.chip.n_workers) for shape in shapes]
        longest = max(len(w.items) for w in lists)
        items = np.zeros((len(lists), longest, lists[0].items.shape[1]), np.int32)
        for j, w in enumerate(lists):
            items[j, : len(w.items)] = w.items
        state: dict[str, Ints] = {
            "items": items.reshape(len(lists), -1)[shape_of_vertex],
            "first_item": np.stack([w.first_item for w in lists])[shape_of_vertex],
            "n_cols": sizes["c"],
        }
        for name in ("out_stride", "left_stride", "left_step", "right_stride"):
            state[name] = np.array([getattr(w, name) for w in lists])[shape_of_vertex]
        work = self._work(sizes)._asdict()
        return state | {n: np.broadcast_to(v, shape_of_vertex.shape) for n, v in work.items()}

    def _work(self, sizes: dict[str, Ints]) -> Work:
        """The work as the method counts it."""
        met = [
            -(-sizes[n] // field.output_step)
            for n, field in zip(self.o, self.plan.problem.fields, strict=True)
        ]
        rows = prod(met[:-1], start=sizes["b"])
        n_outputs = prod((sizes[n] for n in self.o), start=sizes["b"])
        form, kernel = self.plan.channel_form, [sizes[n] for n in self.k]
        n_in, n_taps = form.n_channels(sizes["i"], kernel), form.n_taps(kernel)
        work = Work(
            sizes["g"], rows * met[-1], rows, n_in, sizes["c"], n_taps,
            self._gathered(sizes), n_outputs,
        )  # fmt: skip
        return seen_by_method(work, self.plan.problem.is_update)

    def _gathered(self, sizes: dict[str, Ints]) -> Ints | int:
        """Inputs that each vertex collects one by one."""
        form, part = self.plan.channel_form, self.partition
        if not form.collects(self.plan.problem.n_in):
            return 0
        extents = (
            np.array([[p.high - p.low for p in row] for row in dim]) for dim in part.pairings
        )
        inputs = [
            extent[self.at[o], self.at[k]]
            for extent, o, k in zip(extents, self.o, self.k, strict=True)
        ]
        outputs, kernel = [sizes[n] for n in self.o], [sizes[n] for n in self.k]
        return sizes["g"] * sizes["b"] * form.n_inputs(sizes["i"], kernel, outputs, inputs)

    def _shapes(self) -> tuple[Ints, list[WorklistShape]]:
        """The distinct shapes of vertices, and which one each vertex has."""
        part = self.partition
        tables, numbers = [], []
        for pairings, o, k in zip(part.pairings, self.o, self.k, strict=True):
            known: dict = {}
            table = np.array(
                [[known.setdefault(p.relative(), len(known)) for p in row] for row in pairings]
            )
            tables.append(list(known))
            numbers.append(table[self.at[o], self.at[k]])
        columns = [part.sizes("g"), part.sizes("b"), *numbers, part.sizes("i"), part.sizes("c")]
        sizes = [int(c.max()) + 1 for c in columns]
        key = np.ravel_multi_index(columns, sizes)
        distinct, which = np.unique(key, return_inverse=True)
        result = []
        for row in zip(*np.unravel_index(distinct, sizes), strict=True):
            g, b, *pairs, i, c = (int(v) for v in row)
            pairings = tuple(t[p] for t, p in zip(tables, pairs, strict=True))
            result.append(WorklistShape(g, b, pairings, i, c))
        return which, result


def _tiles_of_parts(blocks: OperandBlocks, spread: Spread) -> Ints:
    """int64[n_blocks, n]: tiles of a block's parts, several times where there are fewer than n."""
    start = blocks.starts().ravel()
    order = np.argsort(start, kind="stable")
    order = order[blocks.sizes().ravel()[order] > 0]
    block = order[np.searchsorted(start[order], spread.begin, "right") - 1]
    by_place = np.lexsort((spread.begin, block))
    n_parts = np.bincount(block, minlength=len(start))
    n = int(n_parts.max())
    part = (np.cumsum(n_parts) - n_parts)[:, None] + np.arange(n) * n_parts[:, None] // n
    return spread.tile[by_place][np.minimum(part, len(block) - 1)]


def _whole_rows(blocks: OperandBlocks, users: Ints, grain: int) -> Ints:
    """int64[n_blocks]: grains of all channels of a position, where each user has several of them.

    PopLibs' blocks have a group of channels each, so its grains are whole rows of them.
    """
    size = blocks.sizes().ravel()
    row = np.broadcast_to(np.diff(blocks.cuts[-1]), blocks.n_blocks).ravel()
    return np.where(size >= ROWS_OF_USER * users.shape[1] * row, row, grain)


def _radix(sizes: list[int]) -> list[int]:
    return [prod(sizes[j + 1 :]) for j in range(len(sizes))]


def _sums(axes: list[Ints]) -> Ints:
    """All sums of one entry per axis, the last axis fastest."""
    total = np.zeros(1, np.int64)
    for axis in axes:
        total = (total[:, None] + axis).ravel()
    return total


@dataclass(frozen=True)
class _Adder:
    """Adds up the users' partial results of blocks: at once, or in stages if there are many."""

    plan: ProductPlan
    users: Ints  # int64[n_blocks, n_users]
    result_start: Ints
    size: Ints
    grain: Ints

    def stages(self, begin: Ints) -> tuple[tuple[ReductionStage, ...], tuple[Spread, ...]]:
        """Stages, and where all but the last write: `begin` is where each user's part begins."""
        tiles = self.users
        stages, maps = [], []
        for n_next in self.plan.reduction_depths:
            begin, tiles, stage, spread = self._narrowed(begin, tiles, n_next)
            stages.append(stage)
            maps.append(spread)
        stages.append(_stage(begin, self.users, self.size, self.result_start, self.grain))
        return tuple(stages), tuple(maps)

    def _narrowed(self, begin: Ints, tiles: Ints, n_next: int) -> tuple:
        """Groups of parts are added up, giving n_next parts of each block."""
        n_blocks, n_parts = begin.shape
        cuts = np.arange(n_next + 1) * n_parts // n_next
        out = (np.cumsum(np.repeat(self.size, n_next)) - np.repeat(self.size, n_next)).reshape(
            n_blocks, n_next
        )
        parts = [
            _stage(begin[:, a:b], tiles[:, a:b], self.size, out[:, j], self.grain)
            for j, (a, b) in enumerate(pairwise(cuts.tolist()))
        ]
        stage = _joined(parts)
        spread = Spread(stage.out_begin, stage.out_end, stage.tile)
        return out, tiles, stage, spread


def _stage(begin: Ints, tiles: Ints, size: Ints, out_start: Ints, grain: Ints) -> ReductionStage:
    """Each block in equal parts over tiles; each adds up its part of all partial results."""
    n_parts = begin.shape[1]
    before = np.cumsum(size) - size
    spread = spread_over_users(before, size, tiles, grain)
    block = np.searchsorted(before, spread.begin, side="right") - 1
    low, length = spread.begin - before[block], spread.end - spread.begin
    part_begin = (begin[block] + low[:, None]).ravel()
    return ReductionStage(
        spread.tile,
        np.arange(len(block) + 1) * n_parts,
        part_begin,
        part_begin + np.repeat(length, n_parts),
        out_start[block] + low,
        out_start[block] + low + length,
    )


def _joined(parts: list[ReductionStage]) -> ReductionStage:
    counts = np.concatenate([np.diff(p.start) for p in parts])
    start = np.concatenate(([0], np.cumsum(counts)))
    names = ("tile", "part_begin", "part_end", "out_begin", "out_end")
    columns = {n: np.concatenate([getattr(p, n) for p in parts]) for n in names}
    return ReductionStage(start=start, **columns)

"""The vertices of static products: partial results on tiles, and their sums."""

import numpy as np

from tremula.base.types import FLOAT, Type
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.runs import Runs, expand
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Ragged, Slices
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.popsparse.static import codelets
from tremula.poplibs.popsparse.static.operands import SparseTensor, StaticProduct, pieces_of
from tremula.poplibs.popsparse.static.partition import WorkLists
from tremula.poplibs.poputil.steps import run_vertices

Ints = np.ndarray
SUM_GRAIN = 8  # outputs of a reduction that PopLibs' planner keeps together


def own_values(sparse: SparseTensor) -> Slices:
    """Each vertex's blocks, where they are."""
    dealt, area = sparse.product.dealt, sparse.product.side**2
    return Slices(sparse.values, dealt.first * area, dealt.last * area)


def turned_values(graph: Graph, sparse: SparseTensor, sequence: Sequence, name: str) -> Slices:
    """Each vertex's blocks in the order of columns, transposed, on its tile."""
    p, area = sparse.product, sparse.product.side**2
    lists, dealt = p.backward, p.dealt
    begin, end = lists.block_start[:-1] * area, lists.block_start[1:] * area
    turned = graph.add_variable(p.element, [int(lists.block_start[-1]) * area], f"{name}/turned")
    if not p.n_blocks:
        return Slices(turned, begin, end)
    graph.set_tile_mapping(turned, TileMapping(begin, end, dealt.tile, graph.target.n_tiles))
    counts = np.diff(lists.block_start)
    source = lists.source - np.repeat(dealt.first, counts)
    fields = {
        "values": Slices(sparse.values, dealt.first * area, dealt.last * area),
        "out": Slices(turned, begin, end),
        "source": Ragged(source, lists.block_start),
    }
    codelet = codelets.gather_values(p.element)
    if p.side > 1:
        codelet = codelets.transpose_blocks(p.element)
        fields["side"] = p.side
    run_vertices(graph, codelet, fields, dealt.tile, sequence, f"{name}/turn")
    return Slices(turned, begin, end)


def _gathered(flat: Tensor, index: Ints, start: Ints, p: StaticProduct) -> Slices:
    """For each vertex the rows `index` of a dense operand, within its columns."""
    width = p.dealt.widths
    owner = np.repeat(np.arange(len(width)), np.diff(start))
    begin = (index * p.params.n + p.dealt.n_begin[owner]) * p.side
    count = width[owner] * p.side
    runs = Runs(begin + flat.offset, count, np.ones_like(count))
    ends = np.diff(start) * width * p.side
    return Slices(pieces_of(flat, runs), np.cumsum(ends) - ends, np.cumsum(ends))


def add_multiply(  # noqa: PLR0917 - operands of one product
    graph: Graph, p: StaticProduct, lists: WorkLists, values: Slices, dense: Tensor, out: Tensor,
    sequence: Sequence, name: str,
) -> None:  # fmt: skip
    """Partial results of every vertex, then their sums."""
    width, side = p.dealt.widths, p.side
    sizes = np.diff(lists.out_start) * width * side
    ends = np.cumsum(sizes)
    parts = graph.add_variable(p.element, [int(sizes.sum())], f"{name}/partials")
    if p.n_blocks:
        mapping = TileMapping(ends - sizes, ends, p.dealt.tile, graph.target.n_tiles)
        graph.set_tile_mapping(parts, mapping)
        fields = {
            "dense": _gathered(dense, lists.in_index, lists.in_start, p),
            "values": values,
            "out": Slices(parts, ends - sizes, ends),
            **_state(p, lists, graph.target.chip.n_workers),
        }
        made = codelets.sparse_dense_elements if side == 1 else codelets.sparse_dense_blocks
        codelet = made(p.element)
        run_vertices(graph, codelet, fields, p.dealt.tile, sequence, f"{name}/multiply")
    owner, within = expand(np.diff(lists.out_start))
    n_rows = out.n_elems // (p.params.n * side)
    begin = (ends - sizes)[owner] + within * width[owner] * side
    place = (lists.out_index * p.params.n + p.dealt.n_begin[owner]) * side
    every = (np.arange(n_rows)[:, None] * p.params.n + np.array(p.plan.n_cuts[:-1])).reshape(-1)
    add_up(graph, parts, begin, place, out, every * side, sequence, f"{name}/reduce")


def _state(p: StaticProduct, lists: WorkLists, n_workers: int) -> dict[str, object]:
    """Work lists as state: where the blocks of each output begin, and offsets of dense rows."""
    n_vertices = len(p.dealt.tile)
    owner = np.repeat(np.arange(n_vertices), np.diff(lists.out_start))
    starts = np.insert(lists.first_block, lists.out_start[1:], np.diff(lists.block_start))
    state_start = lists.out_start + np.arange(n_vertices + 1)
    of_block = np.repeat(p.dealt.widths * p.side, np.diff(lists.block_start))
    state: dict[str, object] = {
        "row_start": Ragged(starts, state_start),
        "offsets": Ragged(lists.input_of_block * of_block, lists.block_start),
        "n_columns": p.dealt.widths,
    }
    if p.side > 1:
        return {**state, "side": p.side}
    n_rows = np.diff(lists.out_start)
    n_parts = np.where((n_rows <= n_workers // 2) & (p.dealt.widths % 8 == 0), 2, 1)
    n_sets = n_workers // n_parts
    # Rows go to a set of workers until it has its share of the values.
    n_values = np.diff(lists.block_start)
    vertex, number = expand(n_sets + 1)
    share = lists.block_start[vertex] + -(-n_values[vertex] * number // n_sets[vertex])
    first = np.searchsorted(lists.first_block + lists.block_start[owner], share)
    first = np.clip(first - lists.out_start[vertex], 0, n_rows[vertex])
    first = np.where(number == n_sets[vertex], n_rows[vertex], first)
    set_start = np.concatenate(([0], np.cumsum(n_sets + 1)))
    return {**state, "n_column_parts": n_parts, "first_row": Ragged(first, set_start)}


def add_values_gradient(
    graph: Graph, p: StaticProduct, dense: Tensor, gradient: Tensor, out: Tensor,
    sequence: Sequence, name: str,
) -> None:  # fmt: skip
    lists, dealt, area = p.forward, p.dealt, p.side**2
    n_vertices, width = len(dealt.tile), dealt.widths * p.side
    counts = np.diff(lists.block_start)
    out_of_block = np.repeat(np.arange(len(lists.out_index)), lists.n_blocks)
    owner = np.repeat(np.arange(n_vertices), counts)
    out_of_block = out_of_block - lists.out_start[owner]
    begin, end = dealt.first * area, dealt.last * area
    target = out
    if p.n_intervals > 1:
        target = graph.add_variable(p.element, [int(counts.sum()) * area], f"{name}/partials")
        begin, end = lists.block_start[:-1] * area, lists.block_start[1:] * area
        graph.set_tile_mapping(target, TileMapping(begin, end, dealt.tile, graph.target.n_tiles))
    fields = {
        "dense": _gathered(dense, lists.in_index, lists.in_start, p),
        "gradient": _gathered(gradient, lists.out_index, lists.out_start, p),
        "out": Slices(target, begin, end),
        "in_offset": Ragged(lists.input_of_block * width[owner], lists.block_start),
        "out_offset": Ragged(out_of_block * width[owner], lists.block_start),
        "n_columns": dealt.widths,
        "n_rows": np.diff(lists.out_start),
        "side": p.side,
    }
    codelet = codelets.values_gradient(p.element)
    run_vertices(graph, codelet, fields, dealt.tile, sequence, f"{name}/multiply")
    if target is not out:
        cuts = np.unique(np.concatenate((dealt.first, dealt.last)))[:-1]
        # Each vertex's partial results, cut where those of any interval begin.
        low, high = np.searchsorted(cuts, dealt.first), np.searchsorted(cuts, dealt.last)
        vertex, within = expand(high - low)
        place = cuts[low[vertex] + within]
        part = (lists.block_start[vertex] + place - dealt.first[vertex]) * area
        add_up(graph, target, part, place * area, out, cuts * area, sequence, f"{name}/reduce")


def add_up(  # noqa: PLR0917 - where parts are, and where they go
    graph: Graph, parts: Tensor, part_begin: Ints, place: Ints, out: Tensor, out_begin: Ints,
    sequence: Sequence, name: str,
) -> None:  # fmt: skip
    """Sum partial results into a flat tensor: part i goes to the stretch that begins at place[i].

    Stretches begin at `out_begin`, ascending from 0, and each ends where the next begins; one
    without a part is zero. Each is a reduction of PopLibs' `reduceMany`: see `places_of_sums`.
    """
    if not out.n_elems:
        return
    by_place = np.argsort(place, kind="stable")
    depth = np.bincount(np.searchsorted(out_begin, place), minlength=len(out_begin))
    cuts, tiles = places_of_sums(graph, out, out_begin, depth)
    ends = np.append(cuts[1:], out.n_elems)
    stretch = np.searchsorted(out_begin, cuts, side="right") - 1
    first = np.searchsorted(place[by_place], out_begin[stretch], side="left")
    last = np.searchsorted(place[by_place], out_begin[stretch], side="right")
    piece, number = expand(last - first)
    at = part_begin[by_place[first[piece] + number]] + (cuts - out_begin[stretch])[piece]
    fields = {
        "parts": Slices(
            parts, at, at + (ends - cuts)[piece], np.concatenate(([0], np.cumsum(last - first)))
        ),
        "out": Slices(out, cuts, ends),
    }
    if out.type is FLOAT:
        fields["totals"] = Slices(out, 0 * cuts, 0 * cuts)
    else:
        totals = graph.add_variable(FLOAT, [out.n_elems], f"{name}/totals")
        graph.set_tile_mapping(totals, TileMapping(cuts, ends, tiles, graph.target.n_tiles))
        fields["totals"] = Slices(totals, cuts, ends)
    run_vertices(graph, codelets.reduce_add(parts.type, out.type), fields, tiles, sequence, name)


def places_of_sums(graph: Graph, out: Tensor, out_begin: Ints, depth: Ints) -> tuple[Ints, Ints]:
    """Where vertices' outputs begin, and their tiles.

    As PopLibs decides for each reduction (ReductionPlan.cpp, ReductionStages.cpp): the tiles of the
    result add up what is theirs, each worker a share of it; or, if the planner expects less of it,
    the reduction is spread over tiles from some tile on, and its sums then move to their tiles.
    """
    target, chip = graph.target, graph.target.chip
    mapping = graph.get_tile_mapping(out)
    order = np.argsort(mapping.begin, kind="stable")
    begin, end, tile = mapping.begin[order], mapping.end[order], mapping.tile[order]
    vector = 16 // out.type.n_bytes
    share = -(-(end - begin) // (chip.n_workers * vector)) * vector
    owner, within = expand(-(-(end - begin) // share))
    shares = begin[owner] + within * share[owner]
    cuts = np.unique(np.concatenate((out_begin, shares)))
    tiles = tile[np.searchsorted(begin, cuts, side="right") - 1]
    size = np.diff(np.append(out_begin, out.n_elems))
    is_spread = _is_spread(
        size, depth, _most_on_a_tile(begin, end, out_begin, size), out.type, chip
    )
    spread = np.flatnonzero(is_spread)
    if not len(spread):
        return cuts, tiles
    is_local = ~is_spread[np.searchsorted(out_begin, cuts, side="right") - 1]
    grain = chip.vector_width(FLOAT)
    each = np.maximum(-(-size[spread] // target.n_tiles), 4 * grain)
    each = -(-each // grain) * grain
    owner, within = expand(-(-size[spread] // each))
    first_tile = spread * 7919 % target.n_tiles
    cuts = np.concatenate((cuts[is_local], out_begin[spread][owner] + within * each[owner]))
    tiles = np.concatenate((tiles[is_local], (first_tile[owner] + within) % target.n_tiles))
    order = np.argsort(cuts, kind="stable")
    return cuts[order], tiles[order]


def _most_on_a_tile(begin: Ints, end: Ints, out_begin: Ints, size: Ints) -> Ints:
    """The most outputs of each reduction in one interval of the result's map."""
    first = np.searchsorted(begin, out_begin, side="right") - 1
    last = np.searchsorted(begin, out_begin + size, side="left")
    owner, within = expand(last - first)
    low = np.maximum(begin[first[owner] + within], out_begin[owner])
    high = np.minimum(end[first[owner] + within], (out_begin + size)[owner])
    most = np.zeros(len(size), np.int64)
    np.maximum.at(most, owner, high - low)
    return most


def _is_spread(size: Ints, depth: Ints, most: Ints, type: Type, chip: Chip) -> Ints:
    """Whether PopLibs' planner expects less of sums on all tiles than on those of the result."""
    width, n_bytes = chip.vector_width(type), type.n_bytes
    rate = chip.exchange_bytes_per_cycle
    each = ceil_div(ceil_div(size, SUM_GRAIN), chip.n_tiles) * SUM_GRAIN
    at_result = most * n_bytes / rate + depth * -(-most // width) + chip.sync_cycles
    spread = each * depth * n_bytes / rate + depth * -(-each // width) + 2 * chip.sync_cycles
    return spread + most * FLOAT.n_bytes / rate <= at_result

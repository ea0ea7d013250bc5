"""Vertices of one stage of a reduction: groups of partials dealt to the workers of their tiles."""

from dataclasses import dataclass, field

import numpy as np

from tremula.poplar.graph import Graph
from tremula.poplar.programs import Execute, Sequence
from tremula.poplar.tensors.runs import Pieces, Runs
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplar.vertices.compute_set import ComputeSet
from tremula.poplibs.popops.reduction.codelets import (
    PLAIN,
    Finish,
    accumulator_type,
    element_cost,
    reduce_vertex,
)
from tremula.poplibs.popops.reduction.operations import REDUCE_OPS
from tremula.poplibs.popops.reduction.segments import Groups, split_outputs, split_rows
from tremula.poplibs.popops.row_parts import mapped_by

Ints = np.ndarray
# What a second compute set costs besides its sync: a vertex that joins the workers' results.
JOIN_SLOTS = 45


def min_shared_outputs(n_workers: int) -> int:
    """Fewer outputs are not worth sharing between workers."""
    return 4 * n_workers


@dataclass(slots=True)
class StageSets:
    """Compute sets made when needed; reductions that run together share them."""

    graph: Graph
    name: str
    sets: list[ComputeSet] = field(default_factory=list)

    def at(self, index: int) -> ComputeSet:
        while len(self.sets) <= index:
            self.sets.append(self.graph.add_compute_set(f"{self.name}/stage{len(self.sets)}"))
        return self.sets[index]

    def add_to(self, sequence: Sequence) -> None:
        sequence.add(*(Execute(one) for one in self.sets))


@dataclass(frozen=True, slots=True)
class StageTarget:
    """Where results go: group g writes its outputs from position at[g] of the flat tensor."""

    tensor: Tensor
    at: Ints
    finish: Finish = PLAIN
    scale: Tensor | float = 1.0


def side_by_side(source: Tensor, groups: Groups) -> tuple[Tensor, Groups]:
    """The partials of each group as one vector: the exchange brings them next to each other."""
    if bool((np.diff(groups.start) == 1).all()):
        return source, groups
    flat = source.runs()
    assert len(flat.start) == 1, "partials are one whole variable"
    runs = Runs(flat.start[0] + groups.begin, groups.n_elems, np.ones_like(groups.begin))
    total = int(groups.n_elems.sum())
    gathered = Tensor(source.variables, source.type, 0, (total,), (1,), Pieces(runs))
    sizes = groups.totals
    ends = np.cumsum(sizes)
    n = len(sizes)
    return gathered, groups._replace(start=np.arange(n + 1), begin=ends - sizes, n_elems=sizes)


def add_stage(
    sets: StageSets, index: int, operation: str, source: Tensor, groups: Groups, is_inner: bool,
    target: StageTarget,
) -> int:  # fmt: skip
    """Add the vertices that reduce groups; returns the index of the next free compute set."""
    if not len(groups.tile):
        return index
    per_tile = np.bincount(groups.tile)
    n_workers = sets.graph.target.chip.n_workers
    is_multi = (groups.width >= min_shared_outputs(n_workers)) & (per_tile[groups.tile] < n_workers)
    if is_inner:
        is_multi[:] = False
    shared, own = np.flatnonzero(is_multi), np.flatnonzero(~is_multi)
    if len(shared):
        _add_vertices(
            sets, index, operation, source, groups.take(shared), None, _part(target, shared)
        )
    if not len(own):
        return index + 1
    return _add_workers(
        sets, index, operation, source, groups.take(own), is_inner, _part(target, own)
    )


def _part(target: StageTarget, rows: Ints) -> StageTarget:
    return StageTarget(target.tensor, target.at[rows], target.finish, target.scale)


def _share_of_workers(groups: Groups, n_workers: int) -> Ints:
    """How many of its tile's workers each group gets, by its share of the elements."""
    totals = groups.totals
    of_tile = np.bincount(groups.tile, weights=totals)[groups.tile]
    return np.clip(np.rint(n_workers * totals / of_tile).astype(np.int64), 1, n_workers)


def _add_workers(
    sets: StageSets, index: int, operation: str, source: Tensor, groups: Groups, is_inner: bool,
    target: StageTarget,
) -> int:  # fmt: skip
    """Vertices of one worker each: cut by outputs where that is possible, else by partials."""
    chip = sets.graph.target.chip
    if is_inner:
        n_parts = np.minimum(_share_of_workers(groups, chip.n_workers), groups.width)
        position = target.at - groups.out
        groups = split_outputs(groups, n_parts)
        target = StageTarget(
            target.tensor, groups.out + np.repeat(position, n_parts), target.finish, target.scale
        )
    can_split = (groups.width == 1) | (not is_inner)
    n_rows = groups.totals // groups.width
    share = _share_of_workers(groups, chip.n_workers)
    n_parts = np.where(can_split, np.minimum(share, n_rows), 1)
    cost = element_cost(operation, source.type, chip)
    saved = groups.totals * (1 - 1 / np.maximum(n_parts, 1)) * cost.slots / cost.width
    if not len(saved) or saved.max() < chip.sync_cycles / chip.n_workers + JOIN_SLOTS:
        _add_vertices(sets, index, operation, source, groups, is_inner, target)
        return index + 1
    whole, split = np.flatnonzero(n_parts <= 1), np.flatnonzero(n_parts > 1)
    if len(whole):
        _add_vertices(
            sets, index, operation, source, groups.take(whole), is_inner, _part(target, whole)
        )
    _add_in_two_steps(
        sets, index, operation, source, groups.take(split), n_parts[split], _part(target, split)
    )
    return index + 2


def _add_in_two_steps(
    sets: StageSets, index: int, operation: str, source: Tensor, groups: Groups, n_parts: Ints,
    target: StageTarget,
) -> None:  # fmt: skip
    """Each worker reduces some partials of the same outputs; a second compute set joins them."""
    parts = split_rows(groups, n_parts)
    type = accumulator_type(operation, source.type)
    joined = mapped_by(sets.graph, type, parts.width, parts.tile, f"{sets.name}/workers")
    at = np.cumsum(parts.width) - parts.width
    _add_vertices(sets, index, operation, source, parts, False, StageTarget(joined, at))
    sizes = groups.width * n_parts
    ends = np.cumsum(sizes)
    second = groups._replace(start=np.arange(len(sizes) + 1), begin=ends - sizes, n_elems=sizes)
    _add_vertices(sets, index + 1, REDUCE_OPS[operation].joined_by, joined, second, False, target)


def _add_vertices(
    sets: StageSets, index: int, operation: str, source: Tensor, groups: Groups,
    is_inner: bool | None, target: StageTarget,
) -> None:  # fmt: skip
    """One vertex per group; `is_inner` None: one that all workers share."""
    graph, out = sets.graph, target.tensor
    acc = accumulator_type(operation, source.type)
    is_multi = is_inner is None
    vertex = reduce_vertex(operation, source.type, out.type, is_multi, target.finish)
    fields: dict[str, object] = {
        "parts": Slices(source, groups.begin, groups.begin + groups.n_elems, groups.start),
        "out": Slices(out, target.at, target.at + groups.width),
    }
    if not is_multi:
        fields["is_inner"] = (groups.width == 1) | bool(is_inner)
    if out.type is not acc or target.finish != PLAIN:
        totals = mapped_by(graph, acc, groups.width, groups.tile, f"{sets.name}/totals")
        ends = np.cumsum(groups.width)
        fields["totals"] = Slices(totals, ends - groups.width, ends)
    if target.finish.scale:
        fields["scale"] = (
            target.scale.flatten().broadcast(len(groups.tile))
            if isinstance(target.scale, Tensor)
            else np.float32(target.scale)
        )
    graph.add_vertices(sets.at(index), vertex, fields, tiles=groups.tile)

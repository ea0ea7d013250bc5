"""popops.reduce: reduce dimensions of a tensor, first within tiles, then across them."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np

from tremula.base.errors import suggest
from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, Type, as_type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence, WriteUndef
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.compute_set import ComputeSet
from tremula.poplibs.counts import distinct
from tremula.poplibs.popops.reduction.codelets import Finish, accumulator_type
from tremula.poplibs.popops.reduction.operations import (
    REDUCE_OPS,
    ReduceOp,
    names_of,
    number_of,
)
from tremula.poplibs.popops.reduction.plan import (
    LEAST_VECTORS,
    at_first_source,
    balanced,
    gather_cycles,
    in_pieces,
    largest_gather,
    needs_another_stage,
    of_mapping,
    pays_at_destination,
    redirected,
)
from tremula.poplibs.popops.reduction.segments import (
    Groups,
    ReductionSegments,
    factors_of,
    grouped,
    segments_of,
)
from tremula.poplibs.popops.reduction.stages import (
    StageSets,
    StageTarget,
    add_stage,
    side_by_side,
)
from tremula.poplibs.popops.row_parts import mapped_by
from tremula.poplibs.poputil.layout import is_contiguous_along
from tremula.poplibs.poputil.memo import remembered
from tremula.poplibs.poputil.replay import replayed
from tremula.poplibs.poputil.shape_hash import hashed
from tremula.poplibs.poputil.tile_mapping import choose_mapping_offset
from tremula.poplibs.registry import PoplibsError

Ints = np.ndarray


@dataclass(frozen=True, slots=True)
class Reduction:
    """One reduction for `reduce_many`."""

    tensor: Tensor
    dims: SequenceOf[int]
    operation: str = "ADD"
    scale: Tensor | float | None = None
    update: bool = False
    out_type: Type | str | None = None
    out: Tensor | None = None


def reduce(  # noqa: PLR0913 - what PopLibs takes
    graph: Graph,
    tensor: Tensor,
    dims: SequenceOf[int],
    operation: str,
    sequence: Sequence,
    name: str = "",
    *,
    scale: Tensor | float | None = None,
    update: bool = False,
    out_type: Type | str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Reduce dimensions of a tensor; the others remain, in their order.

    `operation` is one of ADD SQUARE_ADD LOG_ADD MUL MIN MAX LOGICAL_AND LOGICAL_OR, or one that
    `register_reduction` added. The first three can `scale` the result, and with `update` add it to
    what `out` holds. Halves are summed as floats.

    >>> from tremula import FLOAT, Graph, IPUModel, Sequence
    >>> graph, sequence = Graph(IPUModel("bow").create_device()), Sequence()
    >>> x = graph.add_variable(FLOAT, [100, 7], "x", mapping="linear")
    >>> reduce(graph, x, [0], "ADD", sequence).shape
    (7,)
    """
    one = Reduction(tensor, dims, operation, scale, update, out_type, out)
    return reduce_many(graph, [one], sequence, name)[0]


def reduce_with_output(
    graph: Graph, tensor: Tensor, out: Tensor, dims: SequenceOf[int], operation: str,
    sequence: "Sequence | list[ComputeSet]", name: str = "", *,
    scale: Tensor | float | None = None, update: bool = False,
) -> None:  # fmt: skip
    """Reduce into a given tensor.

    Given a list of compute sets in place of a sequence, its stages go into those, and into more
    that it appends: execute them in order. So several reductions can share compute sets.
    """
    if not isinstance(sequence, list):
        reduce(graph, tensor, dims, operation, sequence, name, scale=scale, update=update, out=out)
        return
    one = Reduction(tensor, dims, operation, scale, update, None, out)
    before = Sequence()
    _ReductionBuilder(graph, StageSets(graph, name or "reduce", sequence), before, one).build()
    if not before.is_empty:
        raise PoplibsError(
            "this reduction needs more than compute sets: its tensor is empty or is only copied.",
            source=user_source(),
            hint="give a Sequence in place of the list of compute sets",
        )


@replayed
def reduce_many(
    graph: Graph, reductions: SequenceOf[Reduction], sequence: Sequence, name: str = ""
) -> list[Tensor]:
    """Several reductions in shared compute sets."""
    sets = StageSets(graph, name or "reduce")
    builders = [
        _ReductionBuilder(graph, sets, sequence, one, number)
        for number, one in enumerate(reductions)
    ]
    done = [builder.build() for builder in builders]
    for partials in (tensor for builder in builders for tensor in builder.written_in_turn):
        sequence.add(WriteUndef(partials))
    sets.add_to(sequence)
    return done


def _order_in_memory(tensor: Tensor) -> list[int]:
    """Dimensions as they lie in memory, the innermost last."""
    order = sorted(range(tensor.rank), key=lambda d: -abs(tensor.strides[d]))
    if tensor.pieces is not None:  # whose strides are not those of memory
        order.sort(key=lambda d: is_contiguous_along(tensor, d))
    return order


class _ReductionBuilder:
    """Plans one reduction and adds its vertices."""

    def __init__(
        self, graph: Graph, sets: StageSets, sequence: Sequence, one: Reduction, number: int = 0
    ):
        """`number` counts reductions that share compute sets."""
        self.graph, self.sets, self.sequence, self.number = graph, sets, sequence, number
        self.tensor, self.out = one.tensor, one.out
        self.dims = _checked_dims(one)
        self.operation, self.out_type = _checked_operation(one)
        self.finish = Finish(
            "" if one.scale is None else "edge" if isinstance(one.scale, Tensor) else "state",
            one.update,
        )
        self.scale = 1.0 if one.scale is None else one.scale
        self.kept_dims = [d for d in range(one.tensor.rank) if d not in self.dims]
        self.shape = tuple(one.tensor.shape[d] for d in self.kept_dims)
        self.written_in_turn: list[Tensor] = []  # partials that several compute sets write
        _check_out(one, self.shape, self.out_type)

    def build(self) -> Tensor:
        n_partials = int(np.prod([self.tensor.shape[d] for d in self.dims], dtype=np.int64))
        if self.tensor.n_elems == 0:
            return self._nothing_to_reduce()
        is_plain = self.finish == Finish() and self.out_type is self.tensor.type
        is_joined_by_itself = REDUCE_OPS[self.operation].joined_by == self.operation
        if n_partials == 1 and is_plain and is_joined_by_itself:
            return self._copied()
        return self._reduced()

    def _nothing_to_reduce(self) -> Tensor:
        """Reducing nothing gives the identity, scaled; with update, outputs keep their values."""
        out = self.out
        if out is None:
            out = self.graph.add_variable(
                self.out_type, self.shape, self._name("out"), mapping="linear"
            )
        if out.n_elems and not self.finish.updates:
            value = REDUCE_OPS[self.operation].identity_of(self.out_type)
            if not isinstance(self.scale, Tensor) and self.scale != 1:
                value *= self.scale  # NaN for the mean of nothing
            constant = self.graph.add_constant(self.out_type, self.shape, value)
            self.graph.set_tile_mapping(constant, self.graph.get_tile_mapping(out))
            self.sequence.add(Copy(constant, out))
        return out

    def _copied(self) -> Tensor:
        source = self.tensor.reshape(self.shape)
        out = self.graph.clone(source, self._name("out")) if self.out is None else self.out
        self.sequence.add(Copy(source, out))
        return out

    def _name(self, what: str) -> str:
        return f"{self.sets.name}/{what}"

    # -- the tensor in memory order ----------------------------------------------------------------

    def _reduced(self) -> Tensor:
        order = _order_in_memory(self.tensor)
        ordered = self.tensor.dim_shuffle(order)
        remaining = [d for d in order if d in self.kept_dims]
        factors = factors_of(list(ordered.shape), [d in self.dims for d in order])
        mapping = self.graph.get_tile_mapping(ordered)
        segments = segments_of(mapping.begin, mapping.end, mapping.tile, factors)
        is_inner = factors[-1][1]
        sizes = tuple(self.tensor.shape[d] for d in remaining)
        self.n_outs = int(np.prod(sizes, dtype=np.int64))
        groups = grouped(segments, self.n_outs, is_inner)
        back = [remaining.index(d) for d in self.kept_dims]
        if self.out is None:
            flat = self.graph.add_variable(self.out_type, [self.n_outs], self._name("out"))
            self._reduce_to(flat, ordered.flatten(), groups, is_inner)
            return flat.reshape(sizes).dim_shuffle(back)
        out = self.out.dim_shuffle([self.kept_dims.index(d) for d in remaining]).flatten()
        self._reduce_to(out, ordered.flatten(), groups, is_inner)
        return self.out

    # -- stages ------------------------------------------------------------------------------------

    def _reduce_to(self, out: Tensor, source: Tensor, groups: Groups, is_inner: bool) -> None:
        """Reduce within tiles; outputs that are not complete on one tile are then gathered."""
        complete = _is_complete(groups)
        here, away = groups.take(np.flatnonzero(complete)), groups.take(np.flatnonzero(~complete))
        self._map_out(out, here.out, here.width, here.tile)
        next_set = add_stage(
            self.sets, 0, self.operation, source, here, is_inner, self._final(out, here.out)
        )
        if not len(away.tile):
            return
        if self._are_partials(source, away):
            segments = ReductionSegments(away.tile, away.begin, away.width, away.out, away.width)
            self._meet(out, source, segments, next_set)
            return
        acc = accumulator_type(self.operation, source.type)
        partials = mapped_by(self.graph, acc, away.width, away.tile, self._name("partials"))
        at = np.cumsum(away.width) - away.width
        after = self._add_partials(0, self.operation, source, away, is_inner, partials, at)
        next_set = max(next_set, after)
        segments = ReductionSegments(away.tile, at, away.width, away.out, away.width)
        self._meet(out, partials, segments, next_set)

    def _add_partials(
        self, index: int, operation: str, source: Tensor, groups: Groups, is_inner: bool,
        partials: Tensor, at: Ints,
    ) -> int:  # fmt: skip
        """Add a stage that writes partial results; returns the next free compute set."""
        target = StageTarget(partials, at)
        after = add_stage(self.sets, index, operation, source, groups, is_inner, target)
        if after > index + 1:
            self.written_in_turn.append(partials)
        return after

    def _are_partials(self, source: Tensor, groups: Groups) -> bool:
        """Whether no tile has two values of an output: then PopLibs gathers them as they are."""
        is_joined_by_itself = REDUCE_OPS[self.operation].joined_by == self.operation
        keeps_type = accumulator_type(self.operation, source.type) is source.type
        has_one_row = len(groups.begin) == len(groups.tile) and bool(
            (groups.n_elems == groups.width).all()
        )
        is_one_piece = len(source.runs().start) == 1 and int(source.runs().stride[0]) == 1
        return is_joined_by_itself and keeps_type and has_one_row and is_one_piece

    def _final(self, out: Tensor, at: Ints) -> StageTarget:
        return StageTarget(out, at, self.finish, self.scale)

    def _map_out(self, out: Tensor, begin: Ints, width: Ints, tile: Ints) -> None:
        """A result of our own is mapped where it is computed."""
        if self.out is None:
            n_tiles = self.graph.target.n_tiles
            self.graph.set_tile_mapping(out, TileMapping(begin, begin + width, tile, n_tiles))

    def _meet(
        self, out: Tensor, partials: Tensor, segments: ReductionSegments, next_set: int
    ) -> None:
        """Gather partial results in intermediate stages, as many as pay, and in a last one."""
        target = self.graph.target
        operation = REDUCE_OPS[self.operation].joined_by
        n_left = len(distinct(segments.out)) if (segments.width == 1).all() else self.n_outs
        grain = 2 * target.chip.vector_width(partials.type)  # additions take two vectors
        n_stages = 0
        while needs_another_stage(segments, n_left, target.chip.n_tiles):
            start = self._start_tile(n_stages)
            n_stages += 1
            moved = in_pieces(segments, self.n_outs, grain, target.n_tiles, start)
            source, groups = side_by_side(partials, grouped(moved, self.n_outs, False))
            partials = mapped_by(
                self.graph, partials.type, groups.width, groups.tile, self._name("partials")
            )
            at = np.cumsum(groups.width) - groups.width
            next_set = self._add_partials(next_set, operation, source, groups, False, partials, at)
            segments = ReductionSegments(groups.tile, at, groups.width, groups.out, groups.width)
        moved = self._last_stage(out, partials, segments, n_stages)
        source, groups = side_by_side(partials, grouped(moved, self.n_outs, False))
        self._map_out(out, groups.out, groups.width, groups.tile)
        add_stage(
            self.sets, next_set, operation, source, groups, False, self._final(out, groups.out)
        )

    def _start_tile(self, stage: int) -> int:
        """Where a stage begins, on the first chip: PopLibs' hash of what tells reductions apart.

        (popops/reduction/Reduction.cpp, `getStartTile`: "to better balance work across the tiles in
        a large model". Partial results of squares are added up.)
        """
        n_partials = self.tensor.n_elems // self.n_outs
        joins = number_of(REDUCE_OPS[self.operation].joined_by)
        facts = (
            n_partials, self.n_outs, *self.shape, joins, self.finish.updates,
            bool(self.finish.scale), self.number, stage,
        )  # fmt: skip
        return choose_mapping_offset(self.graph.target.chip.n_tiles, facts)

    def _last_stage(
        self, out: Tensor, partials: Tensor, segments: ReductionSegments, n_stages: int
    ) -> ReductionSegments:
        """Partials on the tiles that join them last.

        A result of our own is spread or where partials are, whichever is cheaper. Else these are
        the tiles of `out` or, where few of them have it all, others from a hashed tile on.
        """
        target = self.graph.target
        n_tiles, chip = target.n_tiles, target.chip
        type, n_outs = partials.type, self.n_outs
        if self.out is not None:
            there = of_mapping(self.graph.get_tile_mapping(out))
            if not pays_at_destination(segments, there, (type, out.type), chip, n_tiles):
                start = choose_mapping_offset(n_tiles, [n_outs], hashed([self.number]))
                there = balanced(n_outs, type, chip, n_tiles, start, LEAST_VECTORS)
            return redirected(segments, there)
        spread = balanced(n_outs, type, chip, n_tiles, self._start_tile(n_stages))
        choices = []
        for place in (spread, at_first_source(segments)):
            moved = redirected(segments, place)
            gathered = largest_gather(moved, n_tiles)
            operation = REDUCE_OPS[self.operation].joined_by
            choices.append((gather_cycles(*gathered, operation, type, chip), moved))
        return min(choices, key=lambda choice: choice[0])[1]


@remembered
def _is_complete(groups: Groups) -> Ints:
    """bool[n_groups]: no other tile has partials of any of its outputs."""
    place = np.concatenate((groups.out, groups.out + groups.width))
    change = np.repeat(np.array([1, -1]), len(groups.out))
    cuts, inverse = np.unique(place, return_inverse=True)
    n_tiles = np.cumsum(np.bincount(inverse, weights=change, minlength=len(cuts))).astype(np.int64)
    shared = np.concatenate(([0], np.cumsum(n_tiles > 1)))
    n = len(groups.out)
    return shared[inverse[n:]] == shared[inverse[:n]]


# -- checks ----------------------------------------------------------------------------------------


def _checked_dims(one: Reduction) -> list[int]:
    dims = [int(d) for d in one.dims]
    rank = one.tensor.rank
    if any(not 0 <= d < rank for d in dims) or len(set(dims)) != len(dims):
        raise PoplibsError(
            f"reduce got dimensions {dims} of a tensor of shape {list(one.tensor.shape)}.",
            source=user_source(),
            hint=f"use each of 0 to {rank - 1} at most once" if rank else "reduce no dimensions",
        )
    return dims


def _checked_operation(one: Reduction) -> tuple[str, Type]:
    """The operation, and the type of its results."""
    operation = REDUCE_OPS.get(one.operation)
    if operation is None:
        raise PoplibsError(
            f"reduce has no operation {one.operation!r}.",
            source=user_source(),
            hint=suggest(str(one.operation), REDUCE_OPS),
        )
    type = one.tensor.type
    if type not in operation.types:
        known = ", ".join(str(t) for t in operation.types)
        raise PoplibsError(
            f"reduce with {one.operation} got a tensor of {type}, expected {known}.",
            source=user_source(),
            hint="cast the tensor first",
        )
    if (one.scale is not None or one.update) and not operation.takes_scale:
        raise PoplibsError(
            f"reduce with {one.operation} got scale or update.",
            source=user_source(),
            hint=f"only {names_of(lambda op: op.takes_scale)} can scale or update",
        )
    default = one.out.type if one.out is not None else type
    out_type = default if one.out_type is None else as_type(one.out_type)
    is_float_pair = {type, out_type} <= {FLOAT, HALF} and operation.mixes_floats
    if out_type is not type and not is_float_pair:
        raise PoplibsError(
            f"reduce with {one.operation} cannot turn {type} into {out_type}.",
            source=user_source(),
            hint=f"{names_of(_mixes)} mix half and float; else cast the result",
        )
    return one.operation, out_type


def _mixes(op: ReduceOp) -> bool:
    return op.mixes_floats and FLOAT in op.types


def _check_out(one: Reduction, shape: tuple[int, ...], type: Type) -> None:
    out = one.out
    if out is None:
        if one.update:
            raise PoplibsError(
                "reduce with update needs a tensor to update.",
                source=user_source(),
                hint="give out=",
            )
        return
    if out.shape != shape or out.type is not type:
        raise PoplibsError(
            f"reduce gives {type} of shape {list(shape)}, but out is {out.type} of shape "
            f"{list(out.shape)}.",
            source=user_source(),
            hint="give out that shape and type",
        )
    if isinstance(one.scale, Tensor) and (one.scale.n_elems != 1 or one.scale.type is not FLOAT):
        raise PoplibsError(
            f"the scale of reduce is {one.scale.type} of shape {list(one.scale.shape)}.",
            source=user_source(),
            hint="use a FLOAT scalar",
        )

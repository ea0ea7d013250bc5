"""The planner: what every way to cut a product costs, in cycles and bytes; the cheapest one."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, combinations

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, QUARTER, Type
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplibs.counts import ceil_div, floor_div
from tremula.poplibs.poplin.product.conv_params import ProductProblem
from tremula.poplibs.poplin.product.methods import METHODS, Work, seen_by_method, work_cycles
from tremula.poplibs.poplin.product.plan import (
    AS_STORED,
    ChannelForm,
    ProductPlan,
    Splits,
    n_reduction_stages,
    narrowed,
)
from tremula.poplibs.poplin.product.vertices import reduce_cycles
from tremula.poplibs.poputil.shape_hash import hashed
from tremula.poplibs.registry import PoplibsError

Ints = np.ndarray


@dataclass(frozen=True)
class MethodVariant:
    """One way to compute: all candidates of a variant differ in their splits alone."""

    method: str
    partials: Type
    in_grain: int
    out_grain: int
    channel_form: ChannelForm = AS_STORED
    is_early: bool = False  # exchange is estimated as PopLibs did in 2019


@dataclass(frozen=True)
class Candidates:
    """Splits as columns: int64[n] each."""

    g: Ints
    b: Ints
    o: tuple[Ints, ...]
    c: Ints
    i: Ints
    k: tuple[Ints, ...]
    c_serial: Ints

    def __len__(self) -> int:
        return len(self.g)

    def take(self, rows: Ints | slice) -> "Candidates":
        return Candidates(
            self.g[rows], self.b[rows], tuple(o[rows] for o in self.o), self.c[rows],
            self.i[rows], tuple(k[rows] for k in self.k), self.c_serial[rows],
        )  # fmt: skip


# PopLibs' estimate of an element that a transform moves ("a few layers of ResNet-50").
TRANSFORM_CYCLES = 5 / 4


def product(columns: tuple[Ints, ...] | list[Ints]) -> Ints:
    total = np.ones_like(columns[0])
    for column in columns:
        total = total * column
    return total


class ProductEstimate:
    """Cycles by term and temporary bytes of candidates of a variant."""

    def __init__(
        self, problem: ProductProblem, chip: Chip, variant: MethodVariant, candidates: Candidates
    ) -> None:
        self.problem, self.chip, self.variant, self.splits = problem, chip, variant, candidates
        self._sizes()
        self.terms: dict[str, Ints] = {}
        self._inputs()
        self._collecting()
        self._calculation()
        self._reduction()
        if variant.is_early:
            self._early_exchange()
        for term in ("exchange inputs", "rearrange on tile", "partial calculation"):
            self.terms[term] = self.terms[term] * candidates.c_serial

    @cached_property
    def cycles(self) -> Ints:
        return sum(self.terms.values(), start=np.zeros_like(self.splits.g))

    @cached_property
    def calculation_bytes(self) -> Ints:
        """Operands and partial results of a tile while it multiplies."""
        return self.left_bytes + self.right_bytes + self.partial_bytes

    @cached_property
    def temp_bytes(self) -> Ints:
        """Operands and partial results that a tile holds temporarily."""
        return np.maximum(self.calculation_bytes, self.partial_bytes + self.reduce_bytes)

    def _sizes(self) -> None:
        p, s, v = self.problem, self.splits, self.variant
        self.g, self.b = ceil_div(p.n_groups, s.g), ceil_div(p.n_batch, s.b)
        self.c = _share(p.n_out, s.c * s.c_serial, v.out_grain)
        self.i = _share(p.n_in, s.i, v.in_grain)
        self.o = [ceil_div(f.n_out, n) for f, n in zip(p.fields, s.o, strict=True)]
        self.k = [ceil_div(f.n_kernel, n) for f, n in zip(p.fields, s.k, strict=True)]
        self.f = [
            np.minimum(ceil_div((o - 1) * f.stride + (k - 1) * f.step + 1, f.dilation), f.n_in)
            for f, o, k in zip(p.fields, self.o, self.k, strict=True)
        ]

    def _inputs(self) -> None:
        """Operands come from the tiles that share them; each holds an equal part already."""
        p, s, chip = self.problem, self.splits, self.chip
        rows, taps = product([s.b, *s.o]), product(list(s.k))
        left_users, right_users = s.c * taps, (s.i * taps if p.is_update else rows)
        left = product([self.g, self.b, *self.f, self.i])
        out = product([self.g, self.b, *self.o, self.c])
        weights = product([self.g, *self.k, self.i, self.c])
        right, result = (out, weights) if p.is_update else (weights, out)
        self.left_bytes, self.right_bytes = left * p.type.n_bytes, right * p.type.n_bytes
        self.partial_bytes = result * self.variant.partials.n_bytes
        self.result = result
        n_bus = chip.n_tiles_per_exchange_bus
        # Neighbouring tiles have different output channels, so they share their inputs.
        n_wide = np.where(s.c % n_bus == 0, n_bus, 1)
        received = _remote(self.left_bytes, left_users) / n_wide
        received = received + _remote(self.right_bytes, right_users)
        self.terms["exchange inputs"] = self._exchange(received)
        local = floor_div(self.left_bytes, left_users) * (left_users > 1)
        local = local + floor_div(self.right_bytes, right_users) * (right_users > 1)
        self.terms["rearrange on tile"] = np.where(
            local > 0,
            chip.on_tile_copy_setup_cycles + ceil_div(local, chip.memcpy_bytes_per_cycle),
            0,
        )

    def _early_exchange(self) -> None:
        """PopLibs' estimate of 2019: all operands and partial results, and no latency."""
        s, chip = self.splits, self.chip
        n_wide = np.where(
            s.c % chip.n_tiles_per_exchange_bus == 0, chip.n_tiles_per_exchange_bus, 1
        )
        inputs = self.left_bytes / n_wide + self.right_bytes
        for term, n_bytes in (
            ("exchange inputs", inputs),
            ("exchange partials", self.partial_bytes * s.c_serial),
        ):
            self.terms[term] = np.ceil(n_bytes / chip.exchange_bytes_per_cycle).astype(np.int64)
        self.terms["rearrange on tile"] = np.zeros_like(s.g)

    def _collecting(self) -> None:
        """Inputs that are moved or padded: PopLibs' estimate of such a transform.

        It counts the elements of whole tensors over the tiles used, exchanged once and copied one
        by one. What a tile really collects has halos, too, and takes longer.
        """
        p, s, form = self.problem, self.splits, self.variant.channel_form
        if not form.collects(p.n_in):
            return
        used = product([s.g, s.b, *s.o, s.c, s.i, *s.k])
        n_bytes = ceil_div(self._n_transformed(form), used) * p.type.n_bytes
        exchanged = n_bytes / self.chip.exchange_bytes_per_cycle
        copied = n_bytes / p.type.n_bytes * TRANSFORM_CYCLES
        self.terms["rearrange inputs"] = np.ceil(exchanged + copied).astype(np.int64)
        n_inputs = self.g * self.b * form.n_inputs(self.i, self.k, self.o, self.f)
        self.left_bytes = n_inputs * p.type.n_bytes

    def _n_transformed(self, form: ChannelForm) -> int:
        """Elements of all inputs and weights as the method sees them."""
        p = self.problem
        kernel = [f.n_kernel for f in p.fields]
        fields = [f.n_out for f in p.fields], [f.n_in for f in p.fields]
        n_inputs = p.n_batch * form.n_inputs(p.n_in, kernel, *fields)
        n_out = -(-p.n_out // self.variant.out_grain) * self.variant.out_grain
        n_weights = form.n_padded(p.n_in, kernel) * form.n_taps(kernel) * n_out
        return int(p.n_groups * (n_inputs + n_weights))

    def _exchange(self, n_bytes: Ints) -> Ints:
        cycles = np.ceil(n_bytes / self.chip.exchange_bytes_per_cycle).astype(np.int64)
        return np.where(n_bytes > 0, cycles + self.chip.exchange_latency_cycles, 0)

    def _calculation(self) -> None:
        v = self.variant
        fields = self.problem.fields
        met = [ceil_div(o, f.output_step) for o, f in zip(self.o, fields, strict=True)]
        rows = product([self.b, *met[:-1]])
        positions, n_outputs = rows * met[-1], product([self.b, *self.o])
        form = v.channel_form
        n_in, n_taps = form.n_channels(self.i, self.k), form.n_taps(self.k)
        work = Work(self.g, positions, rows, n_in, self.c, n_taps, n_outputs=n_outputs)
        work = seen_by_method(work, self.problem.is_update)
        self.terms["partial calculation"] = work_cycles(
            v.method, work, self.chip, self.problem.type, v.partials
        )

    def _reduction(self) -> None:
        p, s, v = self.problem, self.splits, self.variant
        depth = product([s.b, *s.o]) if p.is_update else s.i * product(list(s.k))
        exchange, compute = np.zeros_like(depth), np.zeros_like(depth)
        self.reduce_bytes = np.zeros_like(depth)
        n_stages = n_reduction_stages(depth)
        left = depth.copy()
        for stage in (3, 2, 1):  # few candidates have three
            rows = np.flatnonzero((n_stages >= stage) & (depth > 1))
            n_next = narrowed(left[rows], stage)
            fan_in = ceil_div(left[rows], n_next if stage > 1 else 1)
            share = ceil_div(self.result[rows], fan_in if stage > 1 else depth[rows])
            n_bytes = share * np.maximum(fan_in - 1, 0) * v.partials.n_bytes
            exchange[rows] += self._exchange(n_bytes)
            compute[rows] += reduce_cycles(share, fan_in, self.chip, v.partials)
            self.reduce_bytes[rows] = np.maximum(self.reduce_bytes[rows], n_bytes)
            if stage > 1:
                left[rows] = n_next
        if v.partials != p.out_type:
            cast = reduce_cycles(self.result, 1, self.chip, v.partials)
            compute += np.where(depth == 1, cast, 0)
        self.terms["exchange partials"] = exchange * s.c_serial
        self.terms["reduce"] = compute * s.c_serial


# Candidates that are costed at a time: their hundred columns stay in a core's cache.
N_AT_ONCE = 1 << 15


class CostedVariant:
    """Cycles and temporary bytes of all candidates of a variant."""

    def __init__(
        self, problem: ProductProblem, chip: Chip, variant: MethodVariant, candidates: Candidates
    ) -> None:
        self.problem, self.chip, self.variant, self.splits = problem, chip, variant, candidates
        parts = []
        for begin in range(0, max(len(candidates), 1), N_AT_ONCE):
            part = self.estimate(slice(begin, begin + N_AT_ONCE))
            parts.append((part.cycles, part.temp_bytes, part.calculation_bytes))
        self.cycles, self.temp_bytes, self.calculation_bytes = map(
            np.concatenate, zip(*parts, strict=True)
        )

    def estimate(self, rows: Ints | slice) -> ProductEstimate:
        """Some candidates, term by term."""
        return ProductEstimate(self.problem, self.chip, self.variant, self.splits.take(rows))


def _share(n: int, n_parts: Ints, grain: int) -> Ints:
    """The largest part of n elements cut into parts of whole grains."""
    return np.minimum(ceil_div(-(-n // grain), n_parts) * grain, n)


def _remote(n_bytes: Ints, n_users: Ints) -> Ints:
    return n_bytes - floor_div(n_bytes, n_users)


# -- the search: every split of every dimension, costed at once; the cheapest that fits -----------


SERIAL_SPLITS = (1, 2, 4, 8, 16, 32)
# Tried, too, where the memory makes a product slow: 768 channels are 48 groups of the matrix unit,
# and with 32 steps only what does without the unit may fit.
FINE_SERIAL_SPLITS = (*SERIAL_SPLITS, 6, 12, 24, 48, 64, 96)
SLOW = 2  # times what it takes with all memory
MAX_PARTS_PER_DIM = 24  # candidates kept of a field dimension, spread over all of them


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What users may ask of a plan."""

    partials_type: Type = FLOAT
    available_memory_proportion: float = 0.6
    cycle_backoff_percent: float = 0.0
    expands_dims: bool = False
    dithers: bool = False  # begins at a tile that its dimensions choose

    def __post_init__(self) -> None:
        if self.partials_type not in (FLOAT, HALF):
            raise PoplibsError(
                f"partials_type is {self.partials_type}, expected float or half.",
                source=user_source(),
                hint="use FLOAT, or HALF for faster products of halves",
            )
        if not 0 <= self.available_memory_proportion <= 2:
            raise PoplibsError(
                f"available_memory_proportion is {self.available_memory_proportion}, expected 0 "
                "to 2.",
                source=user_source(),
                hint="use 0.6, or less to save memory",
            )
        if not self.cycle_backoff_percent >= 0:
            raise PoplibsError(
                f"cycle_backoff_percent is {self.cycle_backoff_percent}, expected 0 or more.",
                source=user_source(),
                hint="use 0 for the fastest plan, 20 for one as PopLibs chose it in 2019",
            )


def plan_product(graph: Graph, problem: ProductProblem, options: PlanOptions) -> ProductPlan:
    """The plan of a product on this graph's tiles; each question is answered once."""
    target = graph.target
    if problem.type is QUARTER and not target.chip.has_quarter_units:
        raise PoplibsError(
            f"{_described(problem)} is one of 8-bit floats, which {target.chip.name} does not "
            "multiply.",
            source=user_source(),
            hint="cast the operands: popops.cast(graph, tensor, HALF, sequence); or use chip c600",
        )
    plan = _planned(problem, target.chip, target.tiles_per_ipu, options)
    if not plan.bound_was_met:
        warnings.warn(
            f"no plan of {_described(problem)} fits in {options.available_memory_proportion:.2f} "
            f"of a tile's memory; the one taken needs {plan.temp_bytes} B temporarily. "
            f"At {user_source()}.",
            stacklevel=3,
        )
    return plan


def _described(problem: ProductProblem) -> str:
    kind = "a weight update" if problem.is_update else "a product"
    return f"{kind} of {list(problem.acts_shape)} by {list(problem.weights_shape)}"


@cache
def _planned(
    problem: ProductProblem, chip: Chip, n_tiles: int, options: PlanOptions
) -> ProductPlan:
    """Within the bound if possible; else the bound is doubled up to twice the tile's memory."""
    memory = chip.n_bytes_per_tile
    bound = int(memory * options.available_memory_proportion)
    variants = list(_variants(problem, chip, options))
    parallel = _estimates(problem, chip, variants, n_tiles, (1,))
    unbound = _best(parallel, None)
    assert unbound is not None, "one candidate is to use one tile"
    result = _best(parallel, bound) if bound else _best(parallel, _least_memory(parallel))
    if result is None or (bound and result[0].cycles > unbound[0].cycles):
        serial = _estimates(problem, chip, variants, n_tiles, SERIAL_SPLITS)
        limit = bound
        result = _best(serial, limit)
        if result is None or result[0].cycles > SLOW * unbound[0].cycles:
            serial = _estimates(problem, chip, variants, n_tiles, FINE_SERIAL_SPLITS)
            result = _best(serial, limit)
        while result is None and limit < 2 * memory:
            limit *= 2
            result = _best(serial, limit)
    if options.cycle_backoff_percent:
        most = int(unbound[0].cycles * (1 + options.cycle_backoff_percent / 100))
        result, bound = _smallest(parallel, most), 0
    choice, variant = result or unbound
    start_tile, goes_down = _start(problem, chip, n_tiles) if options.dithers else (0, False)
    return ProductPlan(
        problem, chip, n_tiles, variant.method, variant.partials, choice.splits,
        variant.in_grain, variant.out_grain, variant.channel_form, choice.costs, choice.temp_bytes,
        bound or choice.temp_bytes, not bound or choice.temp_bytes <= bound,
        start_tile=start_tile, goes_down=goes_down,
    )  # fmt: skip


def _start(problem: ProductProblem, chip: Chip, n_tiles: int) -> tuple[int, bool]:
    """Where a product begins, and whether it goes on downwards: by PopLibs' hash.

    (ConvPlan.cpp, `getStartTile`.) Of a convolution, and of the gradients of its input and its
    weights, it is equal: the field is that of the forward pass, which is the larger one, and the
    product of other dimensions does not depend on their order.
    """
    field = [max(dim.n_in, dim.n_out) for dim in problem.fields]
    others = problem.n_batch * problem.n_in * problem.n_out
    seed = hashed([problem.n_groups, *field, others])
    width = chip.n_tiles_per_exchange_bus
    return seed % int(ceil_div(n_tiles, width)) * width, bool(seed % 2)


def _estimates(
    problem: ProductProblem,
    chip: Chip,
    variants: list[MethodVariant],
    n_tiles: int,
    serial: tuple[int, ...],
) -> list[CostedVariant]:
    """All candidates of each variant, costed."""
    return [
        CostedVariant(problem, chip, v, _candidates(problem, v, n_tiles, serial)) for v in variants
    ]


def _least_memory(estimates: list[CostedVariant]) -> int:
    return min(int(e.temp_bytes.min()) for e in estimates)


class _Choice:
    """The cheapest candidate of a variant."""

    def __init__(self, costed: CostedVariant, row: int) -> None:
        estimate = costed.estimate(np.array([row]))
        self.costs = {name: int(term[0]) for name, term in estimate.terms.items()}
        self.cycles = sum(self.costs.values())
        self.temp_bytes = int(estimate.temp_bytes[0])
        s = estimate.splits
        self.splits = Splits(
            int(s.g[0]), int(s.b[0]), tuple(int(o[0]) for o in s.o), int(s.c[0]), int(s.i[0]),
            tuple(int(k[0]) for k in s.k), int(s.c_serial[0]),
        )  # fmt: skip


def _best(
    estimates: list[CostedVariant], bound: int | None
) -> tuple[_Choice, MethodVariant] | None:
    """The cheapest candidate of all variants; among equals the one that needs less memory."""
    best: tuple[_Choice, MethodVariant] | None = None
    for estimate in estimates:
        cycles, temp = estimate.cycles, estimate.temp_bytes
        rows = np.arange(len(cycles)) if bound is None else np.flatnonzero(temp <= bound)
        if not len(rows):
            continue
        cheapest = rows[cycles[rows] == cycles[rows].min()]
        row = int(cheapest[np.argmin(temp[cheapest])])
        if best is None or (cycles[row], temp[row]) < (best[0].cycles, best[0].temp_bytes):
            best = (_Choice(estimate, row), estimate.variant)
    return best


def _smallest(
    estimates: list[CostedVariant], most_cycles: int
) -> tuple[_Choice, MethodVariant] | None:
    """The candidate that multiplies in the least memory, of those within a number of cycles.

    PopLibs' rule of 2019 (ConvPlan.cpp): among equals the one that takes fewer cycles.
    """
    best: tuple[tuple[int, int], CostedVariant, int] | None = None
    for estimate in estimates:
        rows = np.flatnonzero(estimate.cycles <= most_cycles)
        if not len(rows):
            continue
        n_bytes, cycles = estimate.calculation_bytes[rows], estimate.cycles[rows]
        first = int(np.lexsort((cycles, n_bytes))[0])
        costs = int(n_bytes[first]), int(cycles[first])
        if best is None or costs < best[0]:
            best = costs, estimate, int(rows[first])
    return best and (_Choice(best[1], best[2]), best[1].variant)


def _variants(problem: ProductProblem, chip: Chip, options: PlanOptions) -> Iterable[MethodVariant]:
    """The methods that can compute the problem."""
    partials = {HALF: options.partials_type, QUARTER: HALF}.get(problem.type, FLOAT)
    for method in METHODS.values():
        grains = method.grains(problem, chip, partials)
        if not grains:
            continue
        for form in _channel_forms(problem, method.is_on_matrix_unit, grains[0], options):
            is_early = options.cycle_backoff_percent > 0
            yield MethodVariant(method.name, partials, *grains, form, is_early)


def _channel_forms(
    problem: ProductProblem, is_on_matrix_unit: bool, grain: int, options: PlanOptions
) -> Iterable[ChannelForm]:
    """PopLibs' candidates of expandDims: every set of dimensions with more inputs than taps."""
    if not options.expands_dims or not is_on_matrix_unit or problem.is_update:
        return [AS_STORED]
    dims = [d for d, f in enumerate(problem.fields) if 1 < f.n_kernel <= f.n_in]
    sets = chain.from_iterable(combinations(dims, n) for n in range(len(dims) + 1))
    return [ChannelForm(moved, grain) for moved in sets]


def _parts(n: int, grain: int, limit: int, keep: int | None = None) -> Ints:
    """All different numbers of parts that n elements can be cut into, none of them empty."""
    n_grains = -(-n // grain)
    size = np.unique(-(-n_grains // np.arange(1, min(n_grains, limit) + 1)))
    parts = np.unique(-(-n_grains // size))
    parts = parts[parts <= limit]
    if keep is not None and len(parts) > keep:
        parts = parts[np.unique(np.rint(np.linspace(0, len(parts) - 1, keep)).astype(int))]
    return parts


def _candidates(
    problem: ProductProblem, variant: MethodVariant, n_tiles: int, serial: tuple[int, ...]
) -> Candidates:
    """Every combination of parts that has a tile for each."""
    fields, n_dims = problem.fields, len(problem.fields)
    keep = None if problem.is_product else MAX_PARTS_PER_DIM
    axes = [_parts(problem.n_groups, 1, n_tiles), _parts(problem.n_batch, 1, n_tiles)]
    axes += [_parts(f.n_out, 1, n_tiles, keep) for f in fields]
    axes += [_parts(problem.n_out, variant.out_grain, n_tiles)]
    axes += [_parts(problem.n_in, variant.in_grain, n_tiles)]
    moved = variant.channel_form.moved
    axes += [_kernel_parts(f.n_kernel, d, moved, n_tiles) for d, f in enumerate(fields)]
    columns = _combined(axes, n_tiles)
    c = columns[2 + n_dims]
    row, which = (x.ravel() for x in np.indices((len(c), len(serial))))
    c_serial = np.asarray(serial)[which]
    fills = _fills(-(-problem.n_out // variant.out_grain), c[row] * c_serial)
    columns, c_serial = [column[row[fills]] for column in columns], c_serial[fills]
    return Candidates(
        columns[0], columns[1], tuple(columns[2 : 2 + n_dims]), columns[2 + n_dims],
        columns[3 + n_dims], tuple(columns[4 + n_dims :]), c_serial,
    )  # fmt: skip


def _kernel_parts(n_taps: int, dim: int, moved: tuple[int, ...], n_tiles: int) -> Ints:
    """The first dimension of a kernel is cut into all taps or none; as channels, into any parts."""
    if moved[:1] == (dim,):
        return _parts(n_taps, 1, n_tiles)
    return np.unique([1, n_taps]) if dim == 0 else np.ones(1, int)


def _fills(n_grains: int, n_parts: Ints) -> Ints:
    """Whether none is empty when cut into `n_parts` parts."""
    return ceil_div(n_grains, ceil_div(n_grains, n_parts)) == n_parts


def _combined(axes: list[Ints], n_tiles: int) -> list[Ints]:
    """All combinations with a product of at most n_tiles, as columns."""
    columns: list[Ints] = []
    used = np.ones(1, np.int64)
    for axis in axes:
        total = used[:, None] * axis
        row, entry = np.nonzero(total <= n_tiles)
        columns = [column[row] for column in columns] + [axis[entry].astype(np.int64)]
        used = total[row, entry]
    return columns

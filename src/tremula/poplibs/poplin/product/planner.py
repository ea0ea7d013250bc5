"""The search for a plan: every split of every dimension, costed at once; the cheapest that fits."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, Type
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplibs.poplin.product.conv_params import Problem
from tremula.poplibs.poplin.product.methods import METHODS
from tremula.poplibs.poplin.product.plan import Plan, Splits
from tremula.poplibs.poplin.product.plan_costs import Candidates, Estimate, Variant
from tremula.poplibs.registry import PoplibsError

Ints = np.ndarray
SERIAL_SPLITS = (1, 2, 4, 8, 16, 32)
MAX_PARTS_PER_DIM = 24  # candidates kept of a field dimension, spread over all of them


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What users may say about a plan."""

    partials_type: Type = FLOAT
    available_memory_proportion: float = 0.6

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


def plan_product(graph: Graph, problem: Problem, options: PlanOptions) -> Plan:
    """The plan of a product on this graph's tiles; the same question is answered once."""
    target = graph.target
    plan = _planned(problem, target.chip, target.tiles_per_ipu, options)
    if not plan.bound_was_met:
        warnings.warn(
            f"no plan of {_described(problem)} fits in {options.available_memory_proportion:.2f} "
            f"of a tile's memory; the one taken needs {plan.temp_bytes} B for a while. "
            f"At {user_source()}.",
            stacklevel=3,
        )
    return plan


def _described(problem: Problem) -> str:
    kind = "a weight update" if problem.is_update else "a product"
    return f"{kind} of {list(problem.acts_shape)} by {list(problem.weights_shape)}"


@cache
def _planned(problem: Problem, chip: Chip, n_tiles: int, options: PlanOptions) -> Plan:
    """Within the bound if possible; else the bound is doubled up to twice the tile's memory."""
    memory = chip.n_bytes_per_tile
    bound = int(memory * options.available_memory_proportion)
    variants = list(_variants(problem, chip, options))
    parallel = _estimates(problem, chip, variants, n_tiles, (1,))
    unbound = _best(parallel, None)
    assert unbound is not None, "one candidate is to use one tile"
    found = _best(parallel, bound) if bound else _best(parallel, _least_memory(parallel))
    if found is None or (bound and found[0].cycles > unbound[0].cycles):
        serial = _estimates(problem, chip, variants, n_tiles, SERIAL_SPLITS)
        limit = bound
        found = _best(serial, limit)
        while found is None and limit < 2 * memory:
            limit *= 2
            found = _best(serial, limit)
    choice, variant = found or unbound
    return Plan(
        problem, chip, n_tiles, variant.method, variant.partials, choice.splits,
        variant.in_grain, variant.out_grain, choice.costs, choice.temp_bytes,
        bound or choice.temp_bytes, not bound or choice.temp_bytes <= bound,
    )  # fmt: skip


def _estimates(
    problem: Problem, chip: Chip, variants: list[Variant], n_tiles: int, serial: tuple[int, ...]
) -> list[Estimate]:
    """All candidates of each variant, costed."""
    return [Estimate(problem, chip, v, _candidates(problem, v, n_tiles, serial)) for v in variants]


def _least_memory(estimates: list[Estimate]) -> int:
    return min(int(e.temp_bytes.min()) for e in estimates)


class _Choice:
    """The cheapest row of an estimate."""

    def __init__(self, estimate: Estimate, row: int) -> None:
        self.costs = {name: int(term[row]) for name, term in estimate.terms.items()}
        self.cycles = sum(self.costs.values())
        self.temp_bytes = int(estimate.temp_bytes[row])
        s = estimate.splits.take(np.array([row]))
        self.splits = Splits(
            int(s.g[0]), int(s.b[0]), tuple(int(o[0]) for o in s.o), int(s.c[0]), int(s.i[0]),
            tuple(int(k[0]) for k in s.k), int(s.c_serial[0]),
        )  # fmt: skip


def _best(estimates: list[Estimate], bound: int | None) -> tuple[_Choice, Variant] | None:
    """The cheapest candidate of all variants; of equal ones the one that needs less memory."""
    best: tuple[_Choice, Variant] | None = None
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


def _variants(problem: Problem, chip: Chip, options: PlanOptions) -> Iterable[Variant]:
    """The methods that can compute the problem."""
    partials = options.partials_type if problem.type is HALF else FLOAT
    for method in METHODS.values():
        grains = method.grains(problem, chip, partials)
        if grains:
            yield Variant(method.name, partials, *grains)


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
    problem: Problem, variant: Variant, n_tiles: int, serial: tuple[int, ...]
) -> Candidates:
    """Every combination of parts that has a tile for each."""
    fields, n_dims = problem.fields, len(problem.fields)
    keep = None if problem.is_product else MAX_PARTS_PER_DIM
    axes = [_parts(problem.n_groups, 1, n_tiles), _parts(problem.n_batch, 1, n_tiles)]
    axes += [_parts(f.n_out, 1, n_tiles, keep) for f in fields]
    axes += [_parts(problem.n_out, variant.out_grain, n_tiles)]
    axes += [_parts(problem.n_in, variant.in_grain, n_tiles)]
    axes += [
        np.unique([1, f.n_kernel]) if d == 0 else np.ones(1, int) for d, f in enumerate(fields)
    ]
    columns = _combined(axes, n_tiles)
    c = columns[2 + n_dims]
    row, which = (x.ravel() for x in np.indices((len(c), len(serial))))
    c_serial = np.asarray(serial)[which]
    kept = _fills(-(-problem.n_out // variant.out_grain), c[row] * c_serial)
    columns, c_serial = [column[row[kept]] for column in columns], c_serial[kept]
    return Candidates(
        columns[0], columns[1], tuple(columns[2 : 2 + n_dims]), columns[2 + n_dims],
        columns[3 + n_dims], tuple(columns[4 + n_dims :]), c_serial,
    )  # fmt: skip


def _fills(n_grains: int, n_parts: Ints) -> Ints:
    """Cut into so many parts, is none of them empty?"""
    size = -(-n_grains // n_parts)
    return -(-n_grains // size) == n_parts


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

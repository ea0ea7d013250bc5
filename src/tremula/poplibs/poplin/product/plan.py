"""A plan: how a product is cut over tiles and time, by which method, and what that should cost."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from tremula.base.types import Type
from tremula.hardware import Chip
from tremula.poplibs.poplin.product.blocks import OperandBlocks, even_cuts
from tremula.poplibs.poplin.product.conv_params import ProductProblem
from tremula.poplibs.poplin.product.worklists import Pairing, pair

Ints = np.ndarray


@dataclass(frozen=True, slots=True)
class Splits:
    """Into how many parts each dimension is cut."""

    g: int = 1
    b: int = 1
    o: tuple[int, ...] = (1,)
    c: int = 1
    i: int = 1
    k: tuple[int, ...] = (1,)
    c_serial: int = 1

    @property
    def n_tiles(self) -> int:
        return self.g * self.b * prod(self.o) * self.c * self.i * prod(self.k)


@dataclass(frozen=True, slots=True)
class ChannelForm:
    """The input channels that a method sees: those of the problem, or more of them.

    PopLibs' transform `expandDims` moves dimensions of the kernel into the channels, so that few
    channels fill the matrix unit. Such inputs, and those whose channels are padded to whole groups
    of `grain`, are views that every tile collects element by element. A grain of 0 counts no such
    collecting.
    """

    moved: tuple[int, ...] = ()  # dimensions of the kernel
    grain: int = 0

    def n_channels(self, n_in: Ints | int, kernel: Sequence[Ints | int]) -> Ints | int:
        """Input channels with all taps that were moved there."""
        return prod((kernel[d] for d in self.moved), start=n_in)

    def n_taps(self, kernel: Sequence[Ints | int]) -> Ints | int:
        """Taps that were not moved."""
        return prod(k for d, k in enumerate(kernel) if d not in self.moved)

    def n_inputs(
        self, n_in: Ints | int, kernel: Sequence, outputs: Sequence, inputs: Sequence
    ) -> Ints | int:
        """Inputs of an image as the method sees them."""
        fields = zip(outputs, inputs, strict=True)
        positions = (o if d in self.moved else f for d, (o, f) in enumerate(fields))
        return prod(positions, start=self.n_padded(n_in, kernel))

    def n_padded(self, n_in: Ints | int, kernel: Sequence[Ints | int]) -> Ints | int:
        """Input channels padded to whole groups."""
        grain = max(self.grain, 1)
        return -(-self.n_channels(n_in, kernel) // grain) * grain

    def collects(self, n_in: int) -> bool:
        """Whether inputs are not used as they are stored."""
        return bool(self.grain) and (bool(self.moved) or n_in % self.grain != 0)


AS_STORED = ChannelForm()


@dataclass(frozen=True)
class ProductPlan:
    """How one product is computed. `costs` are the planner's estimates in cycles, by term."""

    problem: ProductProblem
    chip: Chip
    n_tiles: int
    method: str
    partials: Type
    splits: Splits
    in_grain: int
    out_grain: int
    channel_form: ChannelForm = AS_STORED
    costs: dict[str, int] = field(hash=False, compare=False, default_factory=dict)
    temp_bytes: int = field(hash=False, compare=False, default=0)
    memory_bound: int = field(hash=False, compare=False, default=0)
    bound_was_met: bool = field(hash=False, compare=False, default=True)
    start_tile: int = 0  # of the first part; the others follow, on tiles modulo all
    goes_down: bool = False  # tiles are counted from the last one

    @property
    def cycles(self) -> int:
        """The estimate of all its terms."""
        return sum(self.costs.values())

    @property
    def n_reduced(self) -> int:
        """Partial results per result."""
        s = self.splits
        return s.b * prod(s.o) if self.problem.is_update else s.i * prod(s.k)

    @property
    def writes_result(self) -> bool:
        """No partial results: vertices write the result itself."""
        return self.n_reduced == 1 and self.partials == self.problem.out_type

    @property
    def reduction_depths(self) -> tuple[int, ...]:
        """Partial results left after each stage of the reduction but the last."""
        return reduction_depths(self.n_reduced)

    @cached_property
    def partition(self) -> "ProductPartition":
        return ProductPartition(self)


def n_reduction_stages(n_reduced: Ints) -> Ints:
    """PopLibs' rule: one stage below 16 parts, two below 125, else three."""
    return np.where(n_reduced < 16, 1, np.where(n_reduced < 125, 2, 3))


def narrowed(n_parts: Ints, n_stages_left: int) -> Ints:
    """Parts left by the first of the remaining stages; all stages have about the same fan-in."""
    n_left = n_parts ** ((n_stages_left - 1) / n_stages_left)
    return np.maximum(1, np.rint(n_left)).astype(np.int64)


def reduction_depths(n_reduced: int) -> tuple[int, ...]:
    """Partial results left after each stage but the last."""
    depths = [np.asarray(n_reduced)]
    for stage in range(int(n_reduction_stages(depths[0])), 1, -1):
        depths.append(narrowed(depths[-1], stage))
    return tuple(int(depth) for depth in depths[1:])


class ProductPartition:
    """The parts of every dimension, and the vertex of each combination of parts.

    Columns have one entry per vertex and serial step, in the order of tiles within a step.
    """

    def __init__(self, plan: ProductPlan) -> None:
        problem, s = plan.problem, plan.splits
        self.plan = plan
        self.g = even_cuts(problem.n_groups, s.g)
        self.b = even_cuts(problem.n_batch, s.b)
        self.o = tuple(even_cuts(f.n_out, n) for f, n in zip(problem.fields, s.o, strict=True))
        self.k = tuple(even_cuts(f.n_kernel, n) for f, n in zip(problem.fields, s.k, strict=True))
        self.c = even_cuts(problem.n_out, s.c * s.c_serial, plan.out_grain)
        self.i = even_cuts(problem.n_in, s.i, plan.in_grain)

    @cached_property
    def pairings(self) -> tuple[list[list[Pairing]], ...]:
        """[dim][part of o][part of k]."""
        return tuple(
            [
                [pair(f, o[p], o[p + 1], k[q], k[q + 1]) for q in range(len(k) - 1)]
                for p in range(len(o) - 1)
            ]
            for f, o, k in zip(self.plan.problem.fields, self.o, self.k, strict=True)
        )

    @cached_property
    def acts_blocks(self) -> OperandBlocks:
        """Where inputs are stored: fields are cut where the parts of the output begin."""
        fields = tuple(
            (0, *(min(max(p[0].low, 0), f.n_in) for p in pairings[1:]), f.n_in)
            for f, pairings in zip(self.plan.problem.fields, self.pairings, strict=True)
        )
        return OperandBlocks(
            (self.g, self.b, *(tuple(np.maximum.accumulate(c).tolist()) for c in fields), self.i)
        )

    @cached_property
    def weights_blocks(self) -> OperandBlocks:
        return OperandBlocks((self.g, *self.k, self.i, self.c))

    @cached_property
    def out_blocks(self) -> OperandBlocks:
        return OperandBlocks((self.g, self.b, *self.o, self.c))

    # -- vertices

    @cached_property
    def coordinates(self) -> dict[str, Ints]:
        """For every vertex the part it has of each dimension, its tile and its serial step."""
        s = self.plan.splits
        names = ["c_serial", *self.tile_order]
        sizes = [self.n_parts(name) for name in names]
        index = np.unravel_index(np.arange(prod(sizes)), sizes)
        result = dict(zip(names, index, strict=True))
        n_tiles = s.n_tiles
        result["tile"] = np.arange(prod(sizes)) % n_tiles
        result["step"] = np.arange(prod(sizes)) // n_tiles
        result["c"] = result["c_serial"] * s.c + result["c"]
        return result

    @property
    def tile_order(self) -> list[str]:
        """Outermost first: neighbours share their inputs."""
        n_dims = len(self.plan.problem.fields)
        fields = [f"o{d}" for d in range(n_dims)]
        kernel = [f"k{d}" for d in range(n_dims)]
        return ["g", "i", *kernel, "b", *fields, "c"]

    def n_parts(self, name: str) -> int:
        s = self.plan.splits
        if name[0] in "ok" and name[1:].isdigit():
            return (s.o if name[0] == "o" else s.k)[int(name[1:])]
        return getattr(s, name)

    def sizes(self, name: str) -> Ints:
        """int64[n]: how much of a dimension each vertex has."""
        cuts = self.cuts(name)
        part = self.coordinates[name]
        return (cuts[1:] - cuts[:-1])[part]

    def cuts(self, name: str) -> Ints:
        if name[0] in "ok" and name[1:].isdigit():
            return np.asarray((self.o if name[0] == "o" else self.k)[int(name[1:])], np.int64)
        return np.asarray(getattr(self, name), np.int64)


# -- a plan for people -----------------------------------------------------------------------------


def plan_report(plan: ProductPlan) -> str:
    """A readable account of a plan and of the planner's estimates."""
    problem, s = plan.problem, plan.splits
    kind = "weight update" if problem.is_update else "product"
    what = f"{kind}: inputs {list(problem.acts_shape)} ({problem.type}), "
    what += f"weights {list(problem.weights_shape)}, result {list(problem.out_shape)}"
    how = f"method {plan.method}, partials {plan.partials}, {s.n_tiles} of {plan.n_tiles} tiles, "
    how += f"{s.c_serial} serial steps"
    if plan.channel_form.moved:
        how += f", kernel dimensions {list(plan.channel_form.moved)} moved into channels"
    head = f"{'dimension':<18}{'size':>8}{'parts':>8}{'serial':>8}{'per tile':>10}"
    lines = [what, how, "", head]
    lines += [_row(*row) for row in _dimensions(plan)]
    lines += ["", f"{'cost':<26}{'cycles':>12}{'share':>8}"]
    total = max(plan.cycles, 1)
    lines += [f"{name:<26}{n:>12}{n / total:>8.1%}" for name, n in plan.costs.items() if n]
    lines.append(f"{'total':<26}{plan.cycles:>12}{_efficiency(plan):>8.1%} of peak")
    fits = "" if plan.bound_was_met else ": does not fit"
    lines.append(f"temporary memory {plan.temp_bytes} B of {plan.memory_bound} B per tile{fits}")
    depths = [plan.n_reduced, *plan.reduction_depths, 1]
    if plan.n_reduced > 1:
        lines.append("partial results " + " → ".join(str(d) for d in depths))
    return "\n".join(lines)


def _dimensions(plan: ProductPlan) -> list[tuple[str, int, int, int, int]]:
    problem, s, part = plan.problem, plan.splits, plan.partition
    rows = [
        ("groups", problem.n_groups, s.g, 1, part.g[1]),
        ("batch", problem.n_batch, s.b, 1, part.b[1]),
    ]
    for d, dim in enumerate(problem.fields):
        rows.append((f"field {d}", dim.n_out, s.o[d], 1, part.o[d][1]))
    for d, dim in enumerate(problem.fields):
        rows.append((f"kernel {d}", dim.n_kernel, s.k[d], 1, part.k[d][1]))
    rows.append(("input channels", problem.n_in, s.i, 1, part.i[1]))
    rows.append(("output channels", problem.n_out, s.c, s.c_serial, part.c[1]))
    return rows


def _row(name: str, size: int, parts: int, serial: int, share: int) -> str:
    return f"{name:<18}{size:>8}{parts:>8}{serial:>8}{share:>10}"


def _efficiency(plan: ProductPlan) -> float:
    peak = plan.chip.flops_per_cycle(plan.problem.type, plan.partials) * plan.n_tiles
    return plan.problem.n_flops / max(peak * plan.cycles, 1)

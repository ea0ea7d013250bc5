"""A plan: how a product is cut over tiles and time, by which method, and what that should cost."""

from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from tremula.base.types import Type
from tremula.hardware import Chip
from tremula.poplibs.poplin.product.blocks import Blocks, even_cuts
from tremula.poplibs.poplin.product.conv_params import Problem
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


@dataclass(frozen=True)
class Plan:
    """How one product is computed. `costs` are the planner's estimates in cycles, by term."""

    problem: Problem
    chip: Chip
    n_tiles: int
    method: str
    partials: Type
    splits: Splits
    in_grain: int
    out_grain: int
    costs: dict[str, int] = field(hash=False, compare=False, default_factory=dict)
    temp_bytes: int = field(hash=False, compare=False, default=0)
    memory_bound: int = field(hash=False, compare=False, default=0)
    bound_was_met: bool = field(hash=False, compare=False, default=True)

    @property
    def cycles(self) -> int:
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
    def partition(self) -> "Partition":
        return Partition(self)


def n_reduction_stages(n_reduced: Ints) -> Ints:
    """PopLibs' rule: one stage below 16 parts, two below 125, else three."""
    return np.where(n_reduced < 16, 1, np.where(n_reduced < 125, 2, 3))


def narrowed(n_parts: Ints, n_stages_left: int) -> Ints:
    """The parts that the first of so many stages leaves: all stages add up about as many."""
    kept = n_parts ** ((n_stages_left - 1) / n_stages_left)
    return np.maximum(1, np.rint(kept)).astype(np.int64)


def reduction_depths(n_reduced: int) -> tuple[int, ...]:
    """Partial results left after each stage but the last."""
    depths = [np.asarray(n_reduced)]
    for stage in range(int(n_reduction_stages(depths[0])), 1, -1):
        depths.append(narrowed(depths[-1], stage))
    return tuple(int(depth) for depth in depths[1:])


class Partition:
    """The parts of every dimension, and the vertex of each combination of parts.

    Columns have one entry per vertex and serial step, in the order of tiles within a step.
    """

    def __init__(self, plan: Plan) -> None:
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
    def acts_blocks(self) -> Blocks:
        """Where inputs are stored: fields are cut where the parts of the output begin."""
        fields = tuple(
            (0, *(min(max(p[0].low, 0), f.n_in) for p in pairings[1:]), f.n_in)
            for f, pairings in zip(self.plan.problem.fields, self.pairings, strict=True)
        )
        return Blocks(
            (self.g, self.b, *(tuple(np.maximum.accumulate(c).tolist()) for c in fields), self.i)
        )

    @cached_property
    def weights_blocks(self) -> Blocks:
        return Blocks((self.g, *self.k, self.i, self.c))

    @cached_property
    def out_blocks(self) -> Blocks:
        return Blocks((self.g, self.b, *self.o, self.c))

    # -- vertices

    @cached_property
    def coordinates(self) -> dict[str, Ints]:
        """For every vertex the part it has of each dimension, its tile and its serial step."""
        s = self.plan.splits
        names = ["c_serial", *self.tile_order]
        sizes = [self.n_parts(name) for name in names]
        index = np.unravel_index(np.arange(prod(sizes)), sizes)
        found = dict(zip(names, index, strict=True))
        n_tiles = s.n_tiles
        found["tile"] = np.arange(prod(sizes)) % n_tiles
        found["step"] = np.arange(prod(sizes)) // n_tiles
        found["c"] = found["c_serial"] * s.c + found["c"]
        return found

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

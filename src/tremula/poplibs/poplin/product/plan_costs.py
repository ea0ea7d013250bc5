"""What candidate plans cost: every term for all candidates at once, in cycles and bytes."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tremula.base.types import Type
from tremula.hardware import Chip
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.poplin.product.conv_params import Problem
from tremula.poplibs.poplin.product.methods import Work, seen_by_method, work_cycles
from tremula.poplibs.poplin.product.plan import n_reduction_stages, narrowed
from tremula.poplibs.poplin.product.vertices import reduce_cycles

Ints = np.ndarray


@dataclass(frozen=True)
class Variant:
    """One way to compute: all candidates of a variant differ in their splits alone."""

    method: str
    partials: Type
    in_grain: int
    out_grain: int


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

    def take(self, rows: Ints) -> "Candidates":
        return Candidates(
            self.g[rows], self.b[rows], tuple(o[rows] for o in self.o), self.c[rows],
            self.i[rows], tuple(k[rows] for k in self.k), self.c_serial[rows],
        )  # fmt: skip


def product(columns: tuple[Ints, ...] | list[Ints]) -> Ints:
    total = np.ones_like(columns[0])
    for column in columns:
        total = total * column
    return total


class Estimate:
    """Cycles by term and temporary bytes of all candidates of a variant."""

    def __init__(
        self, problem: Problem, chip: Chip, variant: Variant, candidates: Candidates
    ) -> None:
        self.problem, self.chip, self.variant, self.splits = problem, chip, variant, candidates
        self._sizes()
        self.terms: dict[str, Ints] = {}
        self._inputs()
        self._calculation()
        self._reduction()
        for term in ("exchange inputs", "rearrange on tile", "partial calculation"):
            self.terms[term] = self.terms[term] * candidates.c_serial

    @cached_property
    def cycles(self) -> Ints:
        return sum(self.terms.values(), start=np.zeros_like(self.splits.g))

    @cached_property
    def temp_bytes(self) -> Ints:
        """Operands and partial results a tile holds for a while."""
        during = self.left_bytes + self.right_bytes + self.partial_bytes
        return np.maximum(during, self.partial_bytes + self.reduce_bytes)

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
        local = self.left_bytes // left_users * (left_users > 1)
        local = local + self.right_bytes // right_users * (right_users > 1)
        self.terms["rearrange on tile"] = np.where(
            local > 0, chip.on_tile_copy_setup_cycles + ceil_div(local, 8), 0
        )

    def _exchange(self, n_bytes: Ints) -> Ints:
        cycles = np.ceil(n_bytes / self.chip.exchange_bytes_per_cycle).astype(np.int64)
        return np.where(n_bytes > 0, cycles + self.chip.exchange_latency_cycles, 0)

    def _calculation(self) -> None:
        v = self.variant
        rows = product([self.b, *self.o[:-1]])
        positions = rows * self.o[-1]
        work = Work(self.g, positions, rows, self.i, self.c, product(self.k))
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
        left = depth
        for stage in (3, 2, 1):
            n_next = narrowed(left, stage)
            does = (n_stages >= stage) & (depth > 1)
            fan_in = ceil_div(left, n_next if stage > 1 else 1)
            users = fan_in if stage > 1 else depth
            share = ceil_div(self.result, users)
            n_bytes = share * np.maximum(fan_in - 1, 0) * v.partials.n_bytes
            exchange += np.where(does, self._exchange(n_bytes), 0)
            compute += np.where(does, reduce_cycles(share, fan_in, self.chip, v.partials), 0)
            self.reduce_bytes = np.maximum(self.reduce_bytes, np.where(does, n_bytes, 0))
            left = np.where(does & (stage > 1), n_next, left)
        if v.partials != p.out_type:
            cast = reduce_cycles(self.result, 1, self.chip, v.partials)
            compute += np.where(depth == 1, cast, 0)
        self.terms["exchange partials"] = exchange * s.c_serial
        self.terms["reduce"] = compute * s.c_serial


def _share(n: int, n_parts: Ints, grain: int) -> Ints:
    """The largest part of n elements cut into parts of whole grains."""
    return np.minimum(ceil_div(-(-n // grain), n_parts) * grain, n)


def _remote(n_bytes: Ints, n_users: Ints) -> Ints:
    return n_bytes - n_bytes // n_users

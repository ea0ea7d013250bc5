"""Codelets of random numbers: a tile's workers, each with its own generator, fill its regions.

Each worker takes its share of every region, so values follow from the workers' states and the
layout alone. What differs between distributions is a row, a `Draw`.
"""

# Fields of codelets are annotated with the machine's types, which pyright takes for variables.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false
# ruff: noqa: N803 - T is a codelet's type, as in its C++ name
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tremula.base.types import Type, float32, int32, uint32, uint64
from tremula.codelets import Input, MultiVertex, Output, Vector
from tremula.codelets.flops import flops_per_element, no_flops
from tremula.codelets.python.random import (
    random_normal,
    random_state,
    random_uint64,
    random_uniform,
    seed_random,
    set_random_state,
)
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplibs.families import class_from_text, family

VECTOR_BYTES = 8
LAUNCH_CYCLES = 4  # published, as the slots below
NUMBER_START_SLOTS, NUMBER_SLOTS = 24, 4
BERNOULLI_START_SLOTS, BERNOULLI_SLOTS = 22, 1
DROPOUT_LAUNCH_CYCLES, DROPOUT_START_SLOTS, DROPOUT_SLOTS = 6, 24, 2
# Derived from the slots of the functions in a loop over pairs of floats.
LOG_UNIFORM_SLOTS, TRUNCATED_SLOTS, TRIANGLE_SLOTS = 12, 4, 6
INTEGER_SLOTS = 8
# Derived: 4 control registers a worker, with a load or store each; seeding hashes two words.
SAVE_SLOTS, SEED_SLOTS = 8, 40
START_SLOTS = 13
STREAM_GROUP = 8  # streams are numbered in groups of this size; a tile's workers use whole groups


def fill_cycles(
    v: CostView, chip: Chip, type: Type, slots: float, start: int, launch: int = LAUNCH_CYCLES
) -> np.ndarray:
    """Tile cycles of a vertex whose workers share out the 64-bit words of `out`."""
    words = -(-v.sizes["out"] * type.n_bytes // (VECTOR_BYTES * chip.n_workers))
    return launch + chip.n_workers * (start + slots * words + 6 * (v.n_subs["out"] - 1))


def seeding_cycles(v: CostView, chip: Chip, slots: int) -> np.ndarray:
    """Tile cycles of a vertex whose workers each do the same work of `slots` slots."""
    return np.full(v.n_rows, LAUNCH_CYCLES + chip.n_workers * (START_SLOTS + slots))


# -- codelets that fill ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A codelet that fills regions with random numbers: what it draws, and what that costs."""

    name: str  # poprand::name<T>
    state: tuple[tuple[str, Type], ...]  # its numbers, the same for all elements
    element: str  # statements that set out[i]
    slots: int  # of a worker, per 64-bit word
    flops: Callable  # of a vertex
    read_once: tuple[str, ...] = ()  # numbers read before the loop
    reads_x: bool = False  # it has an input x, read as x[i]
    start: int = NUMBER_START_SLOTS
    launch: int = LAUNCH_CYCLES
    provenance: str = "published"
    cycles: Callable | None = None  # (v, chip, T), where they depend on more than the words

    def cost(self, v: CostView, chip: Chip, type: Type) -> np.ndarray:
        if self.cycles is not None:
            return self.cycles(v, chip, type)
        return fill_cycles(v, chip, type, self.slots, self.start, self.launch)


_TEMPLATE = """\
class {name}(MultiVertex):
    name = "poprand::{name}<{type}>"
    provenance = "{provenance}"
    {fields}

    def compute(self, worker_id):
{kept}        for r in range(len(self.out)):
            {region}
            n = len(out)
            begin = n * worker_id // self.n_workers
            end = n * (worker_id + 1) // self.n_workers
            for i in range(begin, end):
                {element}

    @staticmethod
    def cycles(v, chip):
        return cost(v, chip, T)

    flops = flops
"""
_IN_ELEMENTS = {
    "exp": math.exp, "float32": float32, "random_normal": random_normal,
    "random_uint64": random_uint64, "random_uniform": random_uniform,
}  # fmt: skip


def fill_codelet(draw: Draw, T: Type) -> type:
    """The codelet of a draw. Each worker takes its share of every region."""
    names = {f"type_{name}": type for name, type in draw.state}
    fields = ["x: Vector[Input[Vector[T]]]"] if draw.reads_x else []
    fields.append("out: Vector[Output[Vector[T]]]")
    fields += [f"{name}: type_{name}" for name, _ in draw.state]
    numbers = ", ".join(f"self.{name}" for name in draw.read_once)
    text = _TEMPLATE.format(
        name=draw.name, type=T, provenance=draw.provenance, fields=indented(fields, 4),
        kept=f"        {', '.join(draw.read_once)} = {numbers}\n" if draw.read_once else "",
        region="x, out = self.x[r], self.out[r]" if draw.reads_x else "out = self.out[r]",
        element=indented(draw.element.strip().splitlines(), 16),
    )  # fmt: skip
    bindings = {**_IN_ELEMENTS, **names, "T": T, "cost": draw.cost, "flops": draw.flops}
    return class_from_text(text, draw.name, bindings)


def indented(lines: list[str], n: int) -> str:
    return ("\n" + " " * n).join(lines)


UNIFORM = Draw(
    name="Uniform",
    state=(("low", float32), ("width", float32)),
    read_once=("low", "width"),
    element="out[i] = min(low + random_uniform() * width, low + width)",
    slots=NUMBER_SLOTS,
    flops=flops_per_element("out", 3),
)
UNIFORM_INT = Draw(
    name="Uniform",
    state=(("low", int32), ("n_values", uint64)),
    read_once=("low", "n_values"),
    element="out[i] = low + int(((random_uint64() >> 32) * n_values) >> 32)",
    slots=INTEGER_SLOTS,
    flops=no_flops,
    provenance="derived",
)
LOG_UNIFORM = Draw(
    name="LogUniform",
    state=(("log_low", float32), ("log_width", float32), ("low", float32), ("high", float32)),
    element="""
value = exp(self.log_low + random_uniform() * self.log_width)
out[i] = max(min(value, self.high), self.low)
""",
    slots=LOG_UNIFORM_SLOTS,
    flops=flops_per_element("out", 5),
    provenance="derived",
)
NORMAL = Draw(  # sums of twelve uniform numbers, as the hardware makes them
    name="Normal",
    state=(("mean", float32), ("std_dev", float32)),
    read_once=("mean", "std_dev"),
    element="out[i] = mean + random_normal() * std_dev",
    slots=NUMBER_SLOTS,
    flops=flops_per_element("out", 2),
)
BERNOULLI = Draw(
    name="Bernoulli",
    state=(("probability", float32), ("one", float32)),
    read_once=("probability", "one"),
    element="out[i] = one if random_uniform() < probability else float32(0)",
    slots=BERNOULLI_SLOTS,
    start=BERNOULLI_START_SLOTS,
    flops=no_flops,  # bits are compared
)
DROPOUT = Draw(
    name="Dropout",
    state=(("keep", float32), ("scale", float32)),
    read_once=("keep", "scale"),
    reads_x=True,
    element="""
is_kept = random_uniform() < keep
out[i] = float32(x[i]) * scale if is_kept else float32(0)
""",
    slots=DROPOUT_SLOTS,
    start=DROPOUT_START_SLOTS,
    launch=DROPOUT_LAUNCH_CYCLES,
    flops=flops_per_element("out", 1),
)


def _truncated_cycles(v: CostView, chip: Chip, type: Type) -> np.ndarray:
    slots = TRUNCATED_SLOTS * v.state["n_tries"].astype(np.int64) + TRIANGLE_SLOTS
    words = -(-v.sizes["out"] * type.n_bytes // (VECTOR_BYTES * chip.n_workers))
    return LAUNCH_CYCLES + chip.n_workers * (NUMBER_START_SLOTS + slots * words)


def _truncated_flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG001
    """As in the cycles: a comparison for every try, the triangle, and its scaling."""
    return v.sizes["out"] * (v.state["n_tries"].astype(np.int64) + 6)


TRUNCATED_NORMAL = Draw(  # drawn again up to n_tries times, then from a triangle
    name="TruncatedNormal",
    state=(("mean", float32), ("std_dev", float32), ("alpha", float32), ("n_tries", uint32)),
    read_once=("alpha", "n_tries"),
    element="""
value = random_normal()
tries = 1
while tries < n_tries and abs(value) > alpha:
    value = random_normal()
    tries += 1
if abs(value) > alpha:
    value = (random_uniform() + random_uniform() - float32(1)) * alpha
out[i] = self.mean + value * self.std_dev
""",
    slots=TRUNCATED_SLOTS,
    flops=staticmethod(_truncated_flops),
    provenance="derived",
    cycles=_truncated_cycles,
)


def _codelets_of(draw: Draw) -> Callable[[Type], type]:
    """The codelets of a draw, one for each element type."""

    @family
    def make(T: Type) -> type:
        return fill_codelet(draw, T)

    return make


uniform_codelet = _codelets_of(UNIFORM)
uniform_int_codelet = _codelets_of(UNIFORM_INT)
log_uniform_codelet = _codelets_of(LOG_UNIFORM)
normal_codelet = _codelets_of(NORMAL)
truncated_normal_codelet = _codelets_of(TRUNCATED_NORMAL)
bernoulli_codelet = _codelets_of(BERNOULLI)
dropout_codelet = _codelets_of(DROPOUT)


# -- seeding ---------------------------------------------------------------------------------------


def seed_worker(low: int, high: int, modifier: int, group: int, worker_id: int) -> None:
    """Start this worker from a seed of two words; each modifier, tile and worker has a stream."""
    stream = group * STREAM_GROUP + worker_id
    seed_random((uint64(high) << 32) | low, (uint64(modifier) << 32) | stream)


@family
def set_seed_codelet() -> type:
    """Seeds all workers of a tile."""

    class SetSeed(MultiVertex):
        name = "poprand::SetSeed"
        provenance = "derived"
        seed: Input[Vector[uint32]]
        modifier: uint32
        stream_group: uint32

        def compute(self: Any, worker_id: int) -> None:
            seed_worker(self.seed[0], self.seed[1], self.modifier, self.stream_group, worker_id)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return seeding_cycles(v, chip, SEED_SLOTS)

        flops = no_flops

    return SetSeed


@family
def save_and_set_seed_codelet() -> type:
    """Seeds all workers of a tile, keeping the states they had."""

    class SaveAndSetSeed(MultiVertex):
        name = "poprand::SaveAndSetSeed"
        provenance = "derived"
        seed: Input[Vector[uint32]]
        saved: Output[Vector[uint64]]
        modifier: uint32
        stream_group: uint32

        def compute(self: Any, worker_id: int) -> None:
            for word in range(2):
                self.saved[2 * worker_id + word] = random_state(word)
            seed_worker(self.seed[0], self.seed[1], self.modifier, self.stream_group, worker_id)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return seeding_cycles(v, chip, SAVE_SLOTS + SEED_SLOTS)

        flops = no_flops

    return SaveAndSetSeed


@family
def restore_seed_codelet() -> type:
    """Gives all workers of a tile the states that were saved."""

    class RestoreSeed(MultiVertex):
        name = "poprand::RestoreSeed"
        provenance = "derived"
        saved: Input[Vector[uint64]]

        def compute(self: Any, worker_id: int) -> None:
            for word in range(2):
                set_random_state(word, self.saved[2 * worker_id + word])

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return seeding_cycles(v, chip, SAVE_SLOTS)

        flops = no_flops

    return RestoreSeed

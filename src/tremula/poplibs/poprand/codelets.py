"""Codelets of random numbers: six workers of a tile, each with its own generator, fill its regions.

Each worker takes its sixth of every region, so values follow from the workers' states and the
layout alone.
"""

# Fields of codelets are annotated with the machine's types, which pyright takes for variables.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false
# ruff: noqa: N803 - T is a codelet's type, as in its C++ name
import math
from typing import Any

import numpy as np

from tremula.base.types import INT, Type, float32, int32, uint32, uint64
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
from tremula.poplibs.families import family

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
STREAM_GROUP = 8  # streams are numbered in groups of so many; a tile's workers use whole groups


def fill_cycles(
    v: CostView, chip: Chip, type: Type, slots: float, start: int, launch: int = LAUNCH_CYCLES
) -> np.ndarray:
    """Tile cycles of a vertex whose workers share out the 64-bit words of `out`."""
    words = -(-v.sizes["out"] * type.n_bytes // (VECTOR_BYTES * chip.n_workers))
    return launch + chip.n_workers * (start + slots * words + 6 * (v.n_subs["out"] - 1))


def seeding_cycles(v: CostView, chip: Chip, slots: int) -> np.ndarray:
    """Tile cycles of a vertex whose workers each do so many slots of the same work."""
    return np.full(v.n_rows, LAUNCH_CYCLES + chip.n_workers * (START_SLOTS + slots))


@family
def uniform_codelet(T: Type) -> type:
    """Floats between two bounds."""

    class Uniform(MultiVertex):
        name = f"poprand::Uniform<{T}>"
        standing = "published"
        out: Vector[Output[Vector[T]]]
        low: float32
        width: float32

        def compute(self: Any, worker_id: int) -> None:
            low, width = self.low, self.width
            for r in range(len(self.out)):
                out = self.out[r]
                n = len(out)
                begin = n * worker_id // self.n_workers
                end = n * (worker_id + 1) // self.n_workers
                for i in range(begin, end):
                    out[i] = min(low + random_uniform() * width, low + width)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return fill_cycles(v, chip, T, NUMBER_SLOTS, NUMBER_START_SLOTS)

        flops = flops_per_element("out", 3)

    return Uniform


@family
def uniform_int_codelet() -> type:
    """Integers between two bounds, both included."""

    class UniformInt(MultiVertex):
        name = "poprand::Uniform<int>"
        standing = "derived"
        out: Vector[Output[Vector[int32]]]
        low: int32
        n_values: uint64

        def compute(self: Any, worker_id: int) -> None:
            low, n_values = self.low, self.n_values
            for r in range(len(self.out)):
                out = self.out[r]
                n = len(out)
                begin = n * worker_id // self.n_workers
                end = n * (worker_id + 1) // self.n_workers
                for i in range(begin, end):
                    out[i] = low + int(((random_uint64() >> 32) * n_values) >> 32)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return fill_cycles(v, chip, INT, INTEGER_SLOTS, NUMBER_START_SLOTS)

        flops = no_flops

    return UniformInt


@family
def log_uniform_codelet(T: Type) -> type:
    """Numbers whose logarithm is uniform between two bounds."""

    class LogUniform(MultiVertex):
        name = f"poprand::LogUniform<{T}>"
        standing = "derived"
        out: Vector[Output[Vector[T]]]
        log_low: float32
        log_width: float32
        low: float32
        high: float32

        def compute(self: Any, worker_id: int) -> None:
            for r in range(len(self.out)):
                out = self.out[r]
                n = len(out)
                begin = n * worker_id // self.n_workers
                end = n * (worker_id + 1) // self.n_workers
                for i in range(begin, end):
                    value = math.exp(self.log_low + random_uniform() * self.log_width)
                    out[i] = max(min(value, self.high), self.low)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return fill_cycles(v, chip, T, LOG_UNIFORM_SLOTS, NUMBER_START_SLOTS)

        flops = flops_per_element("out", 5)

    return LogUniform


@family
def normal_codelet(T: Type) -> type:
    """Normal numbers: sums of twelve uniform ones, as the hardware makes them."""

    class Normal(MultiVertex):
        name = f"poprand::Normal<{T}>"
        standing = "published"
        out: Vector[Output[Vector[T]]]
        mean: float32
        std_dev: float32

        def compute(self: Any, worker_id: int) -> None:
            mean, std_dev = self.mean, self.std_dev
            for r in range(len(self.out)):
                out = self.out[r]
                n = len(out)
                begin = n * worker_id // self.n_workers
                end = n * (worker_id + 1) // self.n_workers
                for i in range(begin, end):
                    out[i] = mean + random_normal() * std_dev

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return fill_cycles(v, chip, T, NUMBER_SLOTS, NUMBER_START_SLOTS)

        flops = flops_per_element("out", 2)

    return Normal


@family
def truncated_normal_codelet(T: Type) -> type:
    """Normal numbers within alpha deviations: drawn again up to n_tries times, then a triangle."""

    class TruncatedNormal(MultiVertex):
        name = f"poprand::TruncatedNormal<{T}>"
        standing = "derived"
        out: Vector[Output[Vector[T]]]
        mean: float32
        std_dev: float32
        alpha: float32
        n_tries: uint32

        def compute(self: Any, worker_id: int) -> None:
            alpha, n_tries = self.alpha, self.n_tries
            for r in range(len(self.out)):
                out = self.out[r]
                n = len(out)
                begin = n * worker_id // self.n_workers
                end = n * (worker_id + 1) // self.n_workers
                for i in range(begin, end):
                    value = random_normal()
                    tries = 1
                    while tries < n_tries and abs(value) > alpha:
                        value = random_normal()
                        tries += 1
                    if abs(value) > alpha:
                        value = (random_uniform() + random_uniform() - float32(1)) * alpha
                    out[i] = self.mean + value * self.std_dev

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            slots = TRUNCATED_SLOTS * v.state["n_tries"].astype(np.int64) + TRIANGLE_SLOTS
            words = -(-v.sizes["out"] * T.n_bytes // (VECTOR_BYTES * chip.n_workers))
            return LAUNCH_CYCLES + chip.n_workers * (NUMBER_START_SLOTS + slots * words)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            # As in `cycles`: a comparison for every try, the triangle, and its scaling.
            return v.sizes["out"] * (v.state["n_tries"].astype(np.int64) + 6)

    return TruncatedNormal


@family
def bernoulli_codelet(T: Type) -> type:
    """One with a probability, else zero."""

    class Bernoulli(MultiVertex):
        name = f"poprand::Bernoulli<{T}>"
        standing = "published"
        out: Vector[Output[Vector[T]]]
        probability: float32
        one: float32

        def compute(self: Any, worker_id: int) -> None:
            probability, one = self.probability, self.one
            for r in range(len(self.out)):
                out = self.out[r]
                n = len(out)
                begin = n * worker_id // self.n_workers
                end = n * (worker_id + 1) // self.n_workers
                for i in range(begin, end):
                    out[i] = one if random_uniform() < probability else float32(0)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return fill_cycles(v, chip, T, BERNOULLI_SLOTS, BERNOULLI_START_SLOTS)

        flops = no_flops  # bits are compared

    return Bernoulli


@family
def dropout_codelet(T: Type) -> type:
    """Elements kept with a probability and scaled, else zero."""

    class Dropout(MultiVertex):
        name = f"poprand::Dropout<{T}>"
        standing = "published"
        x: Vector[Input[Vector[T]]]
        out: Vector[Output[Vector[T]]]
        keep: float32
        scale: float32

        def compute(self: Any, worker_id: int) -> None:
            keep, scale = self.keep, self.scale
            for r in range(len(self.out)):
                x, out = self.x[r], self.out[r]
                n = len(out)
                begin = n * worker_id // self.n_workers
                end = n * (worker_id + 1) // self.n_workers
                for i in range(begin, end):
                    is_kept = random_uniform() < keep
                    out[i] = float32(x[i]) * scale if is_kept else float32(0)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            launch, start = DROPOUT_LAUNCH_CYCLES, DROPOUT_START_SLOTS
            return fill_cycles(v, chip, T, DROPOUT_SLOTS, start, launch)

        flops = flops_per_element("out", 1)

    return Dropout


def seed_worker(low: int, high: int, modifier: int, group: int, worker_id: int) -> None:
    """Start this worker from a seed of two words; each modifier, tile and worker has a stream."""
    stream = group * STREAM_GROUP + worker_id
    seed_random((uint64(high) << 32) | low, (uint64(modifier) << 32) | stream)


@family
def set_seed_codelet() -> type:
    """Seeds all workers of a tile."""

    class SetSeed(MultiVertex):
        name = "poprand::SetSeed"
        standing = "derived"
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
        standing = "derived"
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
        standing = "derived"
        saved: Input[Vector[uint64]]

        def compute(self: Any, worker_id: int) -> None:
            for word in range(2):
                set_random_state(word, self.saved[2 * worker_id + word])

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return seeding_cycles(v, chip, SAVE_SLOTS)

        flops = no_flops

    return RestoreSeed

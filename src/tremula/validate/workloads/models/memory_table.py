"""Whether the public programs fit their chips, at their batch and at twice that.

A program is compiled as small as it is timed, and read for the whole, tile by tile: tensors that
are always live add up over the parts of a chip; code is there once for each kind of part, since
equal layers share it; of what is live for a while the largest counts. Values that wait for the
backward pass are counted as in the small pipeline: about the mean of the large one's stages.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tremula.compiler.executable.executable import Executable
from tremula.compiler.passes.memory import CATEGORIES
from tremula.validate.rows import DATA, MeasuredRow, read_rows
from tremula.validate.workloads.model_call import compiled_call
from tremula.validate.workloads.models import pipeline
from tremula.validate.workloads.models.pipeline import Training, training_call
from tremula.validate.workloads.table import chip_of, find_workload

PUBLIC_PROGRAMS = DATA / "public_programs.csv"
_DATA_CATEGORIES = [CATEGORIES.index(name) for name in ("Variables", "Constants")]


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The fullest tile of a program."""

    name: str
    batch_factor: int
    n_bytes: float
    available: float

    @property
    def share(self) -> float:
        return self.n_bytes / self.available

    @property
    def fits(self) -> bool:
        return self.n_bytes <= self.available


class _Collected(Exception):
    """Carries the training that a row means; nothing was timed."""

    def __init__(self, training: Training):
        super().__init__()
        self.training = training


def public_rows(path: Path = PUBLIC_PROGRAMS) -> list[MeasuredRow]:
    return read_rows(path)


def training_of(row: MeasuredRow) -> Training:
    """The training program that a row's workload would time."""
    with _collecting():
        try:
            find_workload(row).predict(row, chip_of(row))
        except _Collected as collected:
            return collected.training
    raise AssertionError(f"{row.id} is not a training program")


@contextmanager
def _collecting() -> Iterator[None]:
    def collect(training: Training, _: str) -> None:
        raise _Collected(training)

    token = pipeline.instead_of_timing.set(collect)
    try:
        yield
    finally:
        pipeline.instead_of_timing.reset(token)


def memory_need(row: MeasuredRow, batch_factor: int = 1) -> MemoryNeed:
    """What the fullest tile of a row's program needs, with its micro-batch times a factor."""
    training = with_batch(training_of(row), batch_factor)
    call = training_call(training, keeps_states_off=training.optimizer.is_off_chip)
    executable = compiled_call(call, chip_of(row)).program().executable
    parameters = np.array(training.of.parameters(call.model)[: len(training.of.parts[0])])
    n_bytes = fullest_tile(training, executable, parameters)
    return MemoryNeed(row.id, batch_factor, n_bytes, executable.analysis.memory.available_bytes)


def with_batch(training: Training, factor: int) -> Training:
    """With micro-batches `factor` times as large."""
    if factor == 1:
        return training
    build = training.build

    def larger(layers):  # noqa: ANN001, ANN202
        model, tensors = build(layers)
        return model, [t.repeat(factor, *[1] * (t.dim() - 1)) for t in tensors]

    return replace(training, build=larger)


def fullest_tile(training: Training, executable: Executable, parameters: np.ndarray) -> float:
    """Bytes; `parameters` float[n_built] are those of the parts on built chips."""
    memory, parts = executable.analysis.memory, np.array(training.of.parts)
    n_built = parts.shape[1]
    by_chip = [
        a.reshape(len(CATEGORIES), n_built, -1) for a in (memory.always_live, memory.temporary)
    ]
    always, temporary = by_chip
    data = always[_DATA_CATEGORIES].sum(axis=0)  # [n_built, n_tiles]
    data = data - _unsharded_states(training, parameters, data.shape[1])[:, None]
    code = always.sum(axis=0) - always[_DATA_CATEGORIES].sum(axis=0)
    passing = temporary.sum(axis=0)
    has = parts > 0
    totals = [
        row @ data + (code * mine[:, None]).sum(axis=0) + (passing * mine[:, None]).max(axis=0)
        for row, mine in zip(parts, has, strict=True)
    ]
    return float(np.max(totals))


def _unsharded_states(training: Training, parameters: np.ndarray, n_tiles: int) -> np.ndarray:
    """Bytes of a tile that the built program has and a replica with its share would not."""
    optimizer = training.optimizer
    if optimizer.is_off_chip or not optimizer.is_sharded:
        return np.zeros(len(parameters))
    return parameters * optimizer.state_bytes * (1 - 1 / training.replicas) / n_tiles


def memory_lines(rows: list[MeasuredRow]) -> Iterator[str]:
    """A table for a terminal, a line as soon as it is known."""
    yield f"{'program':<34} {'batch':>6} {'fullest tile':>13} {'share':>7}"
    for row in rows:
        for factor in (1, 2):
            need = memory_need(row, factor)
            verdict = "fits" if need.fits else f"{need.n_bytes - need.available:,.0f} bytes over"
            figures = f"{f'x{factor}':>6} {need.n_bytes:>13,.0f} {need.share:>7.1%}"
            yield f"{row.id:<34} {figures} {verdict}"

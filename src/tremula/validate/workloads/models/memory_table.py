"""Whether the public programs fit their chips, at their batch and at twice that.

A program is compiled as small as it is timed, and read for the whole, tile by tile: weights, states
and sums of gradients add up over the parts of a chip, and so does what waits for the backward pass,
as long as it does on that chip; code is there once for each kind of part, since equal layers share
it (of a pair of unlike layers, half of it for one), and each codelet once; of what is live for a
while the largest counts. Replicas that share the states of the optimiser update a share of the
weights each.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from pathlib import Path

import numpy as np

from tremula.base.storage.atomic_file import write_text
from tremula.base.types import HALF
from tremula.validate.page import split_page
from tremula.validate.rows import DATA, MeasuredRow, read_rows
from tremula.validate.saved_rows import SavedRecords
from tremula.validate.workloads.model_call import compiled_call
from tremula.validate.workloads.models import pipeline
from tremula.validate.workloads.models.built_memory import BuiltMemory, built_memory
from tremula.validate.workloads.models.pipeline import Training, training_call
from tremula.validate.workloads.table import chip_of, find_workload

PUBLIC_PROGRAMS = DATA / "public_programs.csv"
BATCH_FACTORS = 1, 2
LAYER_HALVES = 2  # attention and feed-forward, whose results the last stage keeps


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """The fullest tile of a program, and what its bytes are for."""

    name: str
    batch_factor: int
    n_bytes: float
    available: float
    contents: Mapping[str, float] = field(default_factory=dict)

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
    contents, available = [], 0
    for proportions, chips in by_proportion(training).items():
        built, parameters = _built(replace(training, proportions=proportions), chip_of(row))
        available = built.available_bytes
        contents.append(fullest_tile(training, built, parameters, chips))
    fullest = max(contents, key=lambda of: sum(of.values()))
    return MemoryNeed(row.id, batch_factor, sum(fullest.values()), available, fullest)


def by_proportion(training: Training) -> dict[tuple[float, ...], list[int]]:
    """What built chips may take for products, and the chips that are read from such a build.

    A build has its layers on a chip other than the first. So one is for the first chip, whose
    layers have its proportion, and one for each proportion of the others.
    """
    shares, n_chips = training.proportions, len(training.of.parts)
    own = [shares[min(chip, len(shares) - 1)] for chip in range(n_chips)]
    is_whole = np.array_equal(training.of.parts, np.eye(n_chips))
    if is_whole or len(set(own)) == 1:
        return {shares: list(range(n_chips))}
    result: dict[tuple[float, ...], list[int]] = {(own[0],): [0]}
    for chip in range(1, n_chips):
        result.setdefault((own[0], own[chip]), []).append(chip)
    return result


def _built(training: Training, chip_name: str) -> tuple[BuiltMemory, np.ndarray]:
    """The compiled build, and the parameters of the parts on its chips."""
    call = training_call(training, keeps_states_off=training.optimizer.is_off_chip)
    executable = compiled_call(call, chip_name).program().executable
    n_built = len(training.of.parts[0])
    parameters = np.array(training.of.parameters(call.model)[:n_built])
    return built_memory(executable, n_built), parameters


def with_batch(training: Training, factor: int) -> Training:
    """With micro-batches `factor` times as large."""
    if factor == 1:
        return training
    build = training.build

    def larger(layers):  # noqa: ANN001, ANN202
        model, tensors = build(layers)
        return model, [t.repeat(factor, *[1] * (t.dim() - 1)) for t in tensors]

    return replace(training, build=larger)


def fullest_tile(
    training: Training, built: BuiltMemory, parameters: np.ndarray, chips: Sequence[int] = ()
) -> dict[str, float]:
    """Bytes of the fullest tile of some chips, or of all, by what they are for.

    `parameters` float[n_built] are those of the parts on built chips.
    """
    columns = [
        _chip_contents(training, built, parameters, chip)
        for chip in chips or range(len(training.of.parts))
    ]
    fullest = max(columns, key=lambda of: float(_summed(of).max()))
    tile = int(_summed(fullest).argmax())
    return {name: float(column[tile]) for name, column in fullest.items()}


def _summed(contents: Mapping[str, np.ndarray]) -> np.ndarray:
    """All bytes of each tile."""
    return reduce(np.add, contents.values())


def _chip_contents(
    training: Training, built: BuiltMemory, parameters: np.ndarray, chip: int
) -> dict[str, np.ndarray]:
    """float[n_tiles] bytes of one chip of the program, by what they are for."""
    parts = np.array(training.of.parts[chip])
    has, n_tiles = parts > 0, built.resident.shape[1]
    resident = built.resident - _unsharded_states(training, parameters, n_tiles)[:, None]
    n_shared = training.replicas if training.optimizer.is_sharded else 1
    largest = np.maximum(built.passing, built.updating / n_shared)
    stack = np.full(n_tiles, float(built.stack_bytes))
    return {
        "weights": parts @ resident,
        "gradients": parts @ built.sums,
        "stash": _stashed(training, chip) @ built.waiting,
        "passing": _largest(largest, has) + _largest(built.registers, has),
        "code": np.minimum(parts, 1) @ built.code + built.vertex_code(has) + stack,
    }


def _largest(columns: np.ndarray, has: np.ndarray) -> np.ndarray:
    return (columns * has[:, None]).max(axis=0)


def _stashed(training: Training, chip: int) -> np.ndarray:
    """float[n_built]: how often a chip of the program has what waits on each built chip.

    Behind the embedding, the first layer of a stage has its input from that stage, which computes
    it again: a built layer has its input from another chip. Layers of the last stage wait for none,
    and keep the results of their two halves.
    """
    parts = np.array(training.of.parts[chip])
    ratios = _slot_ratios(training, chip) * training.checkpoint_bytes / HALF.n_bytes
    layers = 1 + np.flatnonzero(parts[1:])
    if parts[0] and len(layers):
        if training.layers_return:
            ratios[layers] = LAYER_HALVES / (2 * (training.n_built_stages - layers - 1))
        else:
            parts[layers[0]] = max(0.0, parts[layers[0]] - 1)
    return parts * ratios


def _slot_ratios(training: Training, chip: int) -> np.ndarray:
    """How much longer values wait on a chip of the program than on each built chip.

    A pipeline of S forward stages has 2 S - 1; that of chip c has its backward stage 2 (S - c - 1)
    stages later, and as many micro-batches wait.
    """
    n_built = len(training.of.parts[0])
    wait = 2 * (training.n_forward_stages - chip - 1)
    built = 2 * (training.n_built_stages - np.arange(n_built) - 1)
    return np.divide(wait, built, out=np.ones(n_built), where=built > 0)


def _unsharded_states(training: Training, parameters: np.ndarray, n_tiles: int) -> np.ndarray:
    """Bytes of a tile that the built program has and a replica with its share would not."""
    optimizer = training.optimizer
    if optimizer.is_off_chip or not optimizer.is_sharded:
        return np.zeros(len(parameters))
    return parameters * optimizer.state_bytes * (1 - 1 / training.replicas) / n_tiles


class KnownNeeds:
    """Needs of programs: computed, or those that an earlier run kept in a file."""

    def __init__(self, path: Path | None = None):
        self._saved = None if path is None else SavedRecords(path)
        self.needs: list[MemoryNeed] = []

    def of(self, row: MeasuredRow, batch_factor: int) -> MemoryNeed:
        saved = self._saved
        record = None if saved is None else saved.find(row.key, "memory", batch_factor)
        need = memory_need(row, batch_factor) if record is None else MemoryNeed(**record)
        if saved is not None and record is None:
            saved.keep(asdict(need), row.key, "memory", batch_factor)
        self.needs.append(need)
        return need


def memory_lines(rows: list[MeasuredRow], known: KnownNeeds | None = None) -> Iterator[str]:
    """A table for a terminal, a line as soon as it is known."""
    known = known or KnownNeeds()
    yield f"{'program':<34} {'batch':>6} {'fullest tile':>13} {'share':>7}  what for, in KB"
    for row in rows:
        for factor in BATCH_FACTORS:
            need = known.of(row, factor)
            verdict = "fits" if need.fits else f"{need.n_bytes - need.available:,.0f} bytes over"
            figures = f"{f'x{factor}':>6} {need.n_bytes:>13,.0f} {need.share:>7.1%}"
            yield f"{row.id:<34} {figures}  {verdict}: {what_for(need)}"


def what_for(need: MemoryNeed) -> str:
    """What the bytes of the fullest tile are for, in KB."""
    return ", ".join(f"{n / 1000:.0f} {name}" for name, n in need.contents.items())


# -- the table of a page ---------------------------------------------------------------------------

BEGIN = "<!-- generated: tremula validate --memory --page -->"
END = "<!-- end of the table of memory -->"
NOT_COMPUTED = "not computed"
_HEAD = (
    "| program | its batch | twice its batch | with its batch, KB | with twice its batch, KB |",
    "|---|---|---|---|---|",
)


def write_memory_page(path: Path, needs: Iterable[MemoryNeed]) -> None:
    """Write the table into a page; lines of programs that were not computed stay.

    A program may be computed with one of the batches alone.
    """
    head, old, tail = split_page(path, BEGIN, END)
    lines = dict(re.findall(r"^(\| [\w.-]+ \|)(.*)$", old, re.MULTILINE))
    by_program: dict[str, dict[int, MemoryNeed]] = {}
    for need in needs:
        by_program.setdefault(f"| {need.name} |", {})[need.batch_factor] = need
    for program, of_factor in by_program.items():
        both = [of_factor.get(factor) for factor in BATCH_FACTORS]
        shares = (NOT_COMPUTED if n is None else _share_text(n) for n in both)
        uses = ("" if n is None else what_for(n) for n in both)
        lines[program] = f" {' | '.join((*shares, *uses))} |"
    lines.pop("| program |", None)
    rows = (program + cells for program, cells in sorted(lines.items()))
    text = "\n".join([*_HEAD, *rows])
    write_text(path, f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}")


def _share_text(need: MemoryNeed) -> str:
    return f"{need.share:.2f}{'' if need.fits else ': too much'}"

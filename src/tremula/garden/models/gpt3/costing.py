"""A GPT compiled and costed for its machine, without a weight: time, memory, links, a report."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tremula.frontends.popxl_addons.program_cost import ProgramCost, bytes_by_kind, cost_of_program
from tremula.frontends.popxl_addons.tile_cost import TileOptions
from tremula.garden.models.gpt3.config import GPTConfig
from tremula.garden.models.gpt3.program import GPTProgram
from tremula.garden.models.gpt3.tables import MemoryRow, chip_rows
from tremula.garden.models.gpt3.training import no_data
from tremula.vision.report.write import write_report

MIB, GIB = 2**20, 2**30


@dataclass(frozen=True)
class CompiledGPT:
    """A program without data, and what a step of it takes."""

    config: GPTConfig
    program: GPTProgram
    cost: ProgramCost
    seconds: float  # that building and compiling took

    @property
    def tokens_per_second(self) -> float:
        return self.config.n_tokens_per_step / self.cost.total_seconds

    def streaming_rows(self) -> list[MemoryRow]:
        """Streaming memory of a replica, from the buffers that the program has."""
        p = self.program
        rest = (p.embedding, p.head)
        sizes = {
            "decoder weights": _bytes(p.layers.weights),
            "decoder gradients": _bytes(p.layers.gradients),
            "decoder moments": _bytes(p.layers.state_buffers),
            "other weights": sum(_bytes(weights.weights) for weights in rest),
            "other gradients": sum(_bytes(weights.gradients) for weights in rest) + p.tied.n_bytes,
            "other moments": sum(_bytes(weights.state_buffers) for weights in rest),
            "activations": p.activations.buffer.n_bytes,
            "gradients of activations": p.gradients.buffer.n_bytes,
        }
        return [MemoryRow(item, "streaming memory", n) for item, n in sizes.items()]

    def write_report(self, path: str | Path) -> Path:
        """A report for the analyser: of the graph that needs the most memory."""
        largest = self.cost.largest
        extra = {
            "graph": largest.name,
            "configuration": self.config.name,
            "tokens per second": self.tokens_per_second,
            "seconds by phase": {phase: self.cost.seconds(phase) for phase in self.cost.phases},
        }
        return write_report(path, largest.executable, largest.report, extra=extra)


def compile_gpt(config: GPTConfig, options: TileOptions | None = None) -> CompiledGPT:
    """Build a training step without data, and compile and cost each of its graphs."""
    began = time.perf_counter()
    program = GPTProgram(config, no_data(config), empty=True)
    cost = cost_of_program(program.ir, options or tile_options(config))
    return CompiledGPT(config, program, cost, time.perf_counter() - began)


def tile_options(config: GPTConfig) -> TileOptions:
    """The configuration's chip; tiles are set aside for I/O if transfers are to run there."""
    machine = config.machine
    n_io_tiles = 0 if machine.io_mode == "compute" else machine.n_io_tiles
    return TileOptions(chip=machine.chip, n_io_tiles=n_io_tiles)


def _bytes(buffers: object) -> int:
    return sum(buffer.n_bytes for buffer in buffers.to_dict().values())  # type: ignore[attr-defined]


# -- in words --------------------------------------------------------------------------------------


def lines_of(compiled: CompiledGPT) -> Iterator[str]:
    """Tables for a terminal: time, memory, links."""
    config, cost = compiled.config, compiled.cost
    n_replicas = config.parallel.n_replicas
    yield (
        f"{config.name}: {config.n_parameters:,} parameters over {n_replicas} chips"
        f" ({config.parallel.data} · {config.parallel.tensor_1} · {config.parallel.tensor_2})"
    )
    yield f"compiled {len(cost.reports)} graphs in {compiled.seconds:.0f} s"
    yield ""
    yield from _time_lines(cost)
    yield (
        f"{cost.total_seconds:.2f} s a step of {config.n_tokens_per_step:,} tokens:"
        f" {compiled.tokens_per_second:,.0f} tokens per second, modelled"
    )
    yield ""
    yield from _memory_lines(compiled)
    yield ""
    yield from _link_lines(cost)


def _time_lines(cost: ProgramCost) -> Iterator[str]:
    yield f"{'phase':<20} {'s':>9} {'tiles':>9} {'of it links':>12} {'streaming':>10} {'GiB':>8}"
    for phase in cost.phases:
        tiles, links = cost.seconds(phase, "tiles"), cost.link_seconds(phase)
        streaming, n_bytes = cost.seconds(phase, "streaming memory"), cost.transfer_bytes(phase)
        yield (
            f"{phase:<20} {cost.seconds(phase):9.3f} {tiles:9.3f} {links:12.3f}"
            f" {streaming:10.3f} {n_bytes / GIB:8.2f}"
        )


def _memory_lines(compiled: CompiledGPT) -> Iterator[str]:
    cost, rows = compiled.cost, compiled.streaming_rows()
    report = cost.largest.report
    fullest, limit = int(report.tiles.n_bytes.max()), report.chip.n_bytes_per_tile
    yield f"{'tensors of a chip':<36} {'MiB':>9}"
    for row in chip_rows(compiled.config):
        yield f"  {row.item:<34} {row.n_bytes / MIB:9.2f}"
    yield f"{'memory of a chip in ' + cost.largest.name.split('_subgraph(')[0]:<36} {'MiB':>9}"
    for category, n_bytes in cost.memory_by_category().items():
        yield f"  {category:<34} {n_bytes / MIB:9.2f}"
    verdict = "fits" if fullest <= limit else "does not fit"
    yield f"  fullest tile: {fullest:,} of {limit:,} bytes: {verdict}"
    yield f"{'streaming memory of a chip':<36} {'GiB':>9}"
    for row in rows:
        yield f"  {row.item:<34} {row.n_bytes / GIB:9.3f}"
    yield f"  {'all':<34} {sum(row.n_bytes for row in rows) / GIB:9.3f}"


def _link_lines(cost: ProgramCost) -> Iterator[str]:
    yield "links, bytes of all chips in a step"
    for phase in cost.phases:
        links = cost.link_bytes(phase)
        if links:
            kinds = ", ".join(f"{k} {n / GIB:.1f} GiB" for k, n in bytes_by_kind(links).items())
            busiest = next(iter(links))
            yield f"  {phase:<20} {kinds}; busiest {busiest}: {links[busiest] / GIB:.2f} GiB"

"""Transfers with the host: prefetched, overlapped on dedicated tiles, and narrow."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from tests.ir.lowering.program.runs import TileRun, run_on_tiles
from tremula.base.errors import InvalidOption
from tremula.compiler.program_ir import StepKind
from tremula.frontends.poptorch.optim.rule import rule_from
from tremula.ir.locations import Location, Locations
from tremula.ir.lowering.program.build import Schedule
from tremula.ir.lowering.tiles import LoweringOptions

pytestmark = pytest.mark.slow
OVER_ACCUMULATION, OVER_ITERATIONS = "overlap_accumulation_loop", "overlap_device_iteration_loop"


class Marked(nn.Module):
    """A model whose input and output are marked with a mode of overlap."""

    def __init__(self, mode: str):
        super().__init__()
        torch.manual_seed(0)
        self.mode = mode
        self.layers = nn.Sequential(*(nn.Linear(32, 32) for _ in range(6)))

    def forward(self, x, *targets):
        out = self.layers(torch.ops.tremula.overlap(x, self.mode, False))
        marked = torch.ops.tremula.overlap(out, self.mode, True)
        if not targets:
            return marked
        target = torch.ops.tremula.overlap(targets[0], self.mode, False)
        return marked, torch.nn.functional.mse_loss(out, target)


@cache
def inferred(mode: str, n_io_tiles: int, depth: int = 0, n: int = 5) -> TileRun:
    x = torch.randn(n, 4, 32, generator=torch.Generator().manual_seed(1))
    options = LoweringOptions(n_io_tiles=n_io_tiles, prefetch_depth=depth)
    return run_on_tiles(Marked(mode), [x], Schedule(n), options, n_tiles=6)


def test_transfers_run_beside_computing():
    """On dedicated tiles, transfers give the same outputs; all but the first and last hide."""
    plain, beside = inferred("no_overlap", 2, 1), inferred(OVER_ITERATIONS, 2, 1)
    for ours, theirs in zip(plain.outputs, beside.outputs, strict=True):
        assert torch.equal(ours, theirs)
    for kind in (StepKind.STREAM_IN, StepKind.STREAM_OUT):
        assert beside.n_cycles_of(kind) < 0.5 * plain.n_cycles_of(kind)
    assert beside.cycles < plain.cycles


def test_one_and_two_micro_batches_overlap_too():
    """Nothing to load behind the last micro-batch, nothing to store before the first."""
    for n in (1, 2):
        result, plain = inferred(OVER_ACCUMULATION, 2, n=n), inferred("no_overlap", 2, n=n)
        assert len(result.outputs) == n
        for ours, theirs in zip(plain.outputs, result.outputs, strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("mode", [OVER_ACCUMULATION, OVER_ITERATIONS])
def test_training_overlaps_within_and_across_iterations(mode):
    """Micro-batches of three iterations of two come in their order, whatever runs beside them."""
    result = []
    for way in ("no_overlap", mode):
        model = Marked(way)
        rule = rule_from(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
        x = torch.randn(6, 4, 32, generator=torch.Generator().manual_seed(1))
        options, schedule = LoweringOptions(n_io_tiles=2), Schedule(3, 2, 1, 0.5)
        inputs = [x, x.flip(0)]
        result.append(run_on_tiles(model, inputs, schedule, options, rule=rule, n_tiles=6))
    for ours, theirs in zip(result[0].weights, result[1].weights, strict=True):
        assert torch.equal(ours, theirs)
    assert result[1].cycles < result[0].cycles


def test_a_prefetching_host_is_waited_for_once():
    """Working ahead, the host lets a call wait once, not at every transfer."""
    cold, warm = inferred("no_overlap", 2), inferred("no_overlap", 2, depth=1)
    chip = warm.engine.executable.target.chip
    latency = chip.host_latency_s * chip.clock_hz
    saved = cold.cycles - warm.cycles
    assert 8 * latency < saved + latency < 10 * latency  # 5 inputs and 5 outputs, less a gateway's
    assert warm.n_cycles_of(StepKind.SYNC) >= latency


def test_bytes_travel_as_bytes():
    """An input of 8 bits is cast on the device: a quarter of a float's bytes cross the link."""

    class Cast(nn.Module):
        def forward(self, x):
            return x.float().sum(1)

    x = torch.randint(0, 255, (2, 64, 512), dtype=torch.uint8)
    narrow = run_on_tiles(Cast(), [x], Schedule(2))
    wide = run_on_tiles(Cast(), [x.float()], Schedule(2))
    for ours, theirs in zip(narrow.outputs, wide.outputs, strict=True):
        torch.testing.assert_close(ours, theirs)
    costs = [r.engine.executable.analysis.costs.host_exchange.max() for r in (narrow, wide)]
    latency = narrow.engine.executable.target.chip.host_latency_s * 1.85e9
    assert (costs[0] - latency) * 3.5 < costs[1] - latency


def test_a_chip_without_tiles_to_compute_is_refused():
    """I/O tiles leave something to compute with."""
    with pytest.raises(InvalidOption, match="a chip has only 6"):
        inferred("no_overlap", 6)


class Layers(nn.Module):
    """Equal layers with much to compute for each of their weights."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(4)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def streamed(location: Location, n_io_tiles: int) -> TileRun:
    options = LoweringOptions(locations=Locations(weight=location), n_io_tiles=n_io_tiles)
    inputs = [torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(1))]
    return run_on_tiles(Layers(), inputs, options=options, n_tiles=12)


def test_weights_are_loaded_ahead():
    """Tiles for I/O fetch the next layer's weights beside computing; numbers stay."""
    away = Location(is_off_chip=True)
    waiting, ahead = streamed(away, 4), streamed(replace(away, uses_io_tiles=True), 4)
    for ours, theirs in zip(ahead.outputs, waiting.outputs, strict=True):
        torch.testing.assert_close(ours, theirs)
    reads = StepKind.REMOTE_READ
    assert ahead.n_cycles_of(reads) < 0.5 * waiting.n_cycles_of(reads)
    assert ahead.cycles < waiting.cycles


class Trained(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Layers()

    def forward(self, x):
        return nn.functional.mse_loss(self.inner(x), torch.zeros_like(x))


def trained_away(location: Location) -> TileRun:
    model = Trained()
    rule = rule_from(torch.optim.Adam(model.parameters(), lr=0.1), model.named_parameters())
    options = LoweringOptions(locations=Locations(state=location), n_io_tiles=4)
    inputs = [torch.randn(1, 4, 64, generator=torch.Generator().manual_seed(1))]
    return run_on_tiles(model, inputs, options=options, rule=rule, n_tiles=12)


def test_states_are_stored_beside_the_next_update():
    """With loads and stores on tiles for I/O an update takes less time, and gives the same."""
    away = Location(is_off_chip=True)
    waiting = trained_away(away)
    beside = trained_away(replace(away, uses_io_tiles=True, stores_on_io_tiles=True))
    for ours, theirs in zip(beside.weights, waiting.weights, strict=True):
        torch.testing.assert_close(ours, theirs)
    kind = StepKind.REMOTE_WRITE
    assert beside.n_cycles_of(kind) < waiting.n_cycles_of(kind)
    assert beside.cycles < waiting.cycles

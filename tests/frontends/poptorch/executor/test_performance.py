"""Cycle counts, latencies and counters: from the tile program, modelled."""

import datetime as dt
import io

import pytest
import torch
from torch import nn

import poptorch
from poptorch import OutputMode
from tremula.ir.run.progress import ProgressBar


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x, y):
        out = self.linear(x)
        return out, nn.functional.mse_loss(out, y)


def data(n):
    return torch.ones(n, 3), torch.zeros(n, 2)


def trained(options, n):
    model = poptorch.trainingModel(Model(), options)
    model(*data(n))
    return model


def options_of(iterations=1, accumulation=1, replicas=1, mode=None, period=None):
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    if mode is not None:
        options.outputMode(mode, period)
    return options


NAMES = ("input", "input_complete", "output", "output_complete")


def test_nothing_before_a_run():
    """Before any run counters are empty and latencies zero."""
    model = poptorch.trainingModel(Model())
    assert model.getPerfCounters() == {name: [[]] for name in NAMES}
    assert model.getLatency() == (0.0, 0.0, 0.0)
    model.compile(*data(2))
    assert model.getPerfCounters() == {name: [[]] for name in NAMES}
    assert model.getComputeLatency() == (0.0, 0.0, 0.0)


def test_synthetic_data_has_no_counters():
    """Without transfers there is nothing to time: an empty list for each tensor."""
    model = trained(poptorch.Options().enableSyntheticData(True), 2)
    assert model.getPerfCounters() == {name: [[], []] for name in NAMES}
    assert model.getHostIpuLatency() == (0.0, 0.0, 0.0)


def test_synthetic_data_takes_no_transfers():
    """A step on made-up data takes fewer cycles, and runs on tiles, where outputs are zeros."""
    cycles = []
    for synthetic in (False, True):
        model = trained(poptorch.Options().logCycleCount(True).enableSyntheticData(synthetic), 2)
        cycles.append(model.cycleCount())
    assert cycles[1] < cycles[0] / 2
    options = poptorch.Options().useIpuModel(True).enableSyntheticData(True)
    out, loss = poptorch.trainingModel(Model(), options)(*data(2))
    assert not out.any()
    assert loss == 0


@pytest.mark.parametrize(
    ("mode", "period", "n_outputs"),
    [
        (OutputMode.All, None, 8),
        (OutputMode.Final, None, 1),
        (OutputMode.Sum, None, 1),
        (OutputMode.EveryN, 2, 4),
    ],
)
def test_lengths(mode, period, n_outputs):
    """One entry per micro-batch for inputs; for outputs as many as the mode returns."""
    model = trained(options_of(4, 2, 1, mode, period), 8)
    counters = model.getPerfCounters()
    assert [len(column) for column in counters["input"]] == [8, 8]
    assert [len(column) for column in counters["input_complete"]] == [8, 8]
    assert [len(column) for column in counters["output"]] == [n_outputs] * 2
    assert [len(column) for column in counters["output_complete"]] == [n_outputs] * 2


def test_lengths_with_replicas():
    """Each replica has its own entries."""
    counters = trained(options_of(1, 1, 2), 2).getPerfCounters()
    assert [len(column) for column in counters["input"]] == [2, 2]
    assert [len(column) for column in counters["output"]] == [2, 2]


def test_latencies_add_up():
    """Host to IPU, compute, and IPU to host make the round trip of a micro-batch."""
    model = trained(options_of(3, 1, 1, OutputMode.All), 3)
    counters = model.getPerfCounters()
    for begin, end in (("input", "input_complete"), ("output", "output_complete")):
        pairs = zip(counters[begin][0], counters[end][0], strict=True)
        assert all(a < b for a, b in pairs)
    assert counters["input"][0] == sorted(counters["input"][0])
    parts = [model.getHostIpuLatency(), model.getComputeLatency(), model.getIpuHostLatency()]
    for least, most, average in [*parts, model.getLatency()]:
        assert 0 < least <= average <= most < 1
    total = sum(average for _, _, average in parts)
    assert model.getLatency()[2] == pytest.approx(total)


def test_cycle_count():
    """Cycles of a call grow with the iterations in it."""
    one = trained(poptorch.Options().logCycleCount(True), 2).cycleCount()
    four = trained(poptorch.Options().deviceIterations(4).logCycleCount(True), 8).cycleCount()
    assert 0 < one < four < 5 * one


def test_cycle_count_equals_the_clock():
    """The count is what the clock of the tile program says after a run."""
    model = trained(poptorch.Options().deviceIterations(2).logCycleCount(True), 4)
    engine = model.tile_program().engine_after_call()
    assert engine.report().total_cycles == model.cycleCount()
    assert engine.report().cycle_interval == model.cycleInterval()
    low, high = model.cycleInterval()
    assert low < model.cycleCount() < high


def test_cycle_count_errors():
    """The option must be set, the model run, and it must not be the IPU model."""
    with pytest.raises(
        poptorch.Error,
        match=r"Cycle count logging is disabled. Please set option logCycleCount to True to enab",
    ):
        trained(poptorch.Options(), 2).cycleCount()
    model = poptorch.trainingModel(Model(), poptorch.Options().logCycleCount(True))
    text = "Please run the model at least once before obtaining cycle count."
    with pytest.raises(poptorch.Error, match=text):
        model.cycleCount()
    model.compile(*data(2))
    with pytest.raises(poptorch.Error, match=text):
        model.cycleCount()
    options = poptorch.Options().logCycleCount(True).useIpuModel(True)
    with pytest.raises(
        poptorch.Error, match=r"Cycle count logging is only supported on actual IPU hardware."
    ):
        poptorch.trainingModel(Model(), options).cycleCount()


def test_compilation_time():
    """The time of a compilation, once there was one, unless the bar is off."""
    model = poptorch.trainingModel(Model())
    with pytest.raises(poptorch.Error, match="Please compile the model before"):
        model.compilationTime()
    model.compile(*data(2))
    assert dt.timedelta(0) < model.compilationTime() < dt.timedelta(minutes=1)
    options = poptorch.Options().showCompilationProgressBar(False)
    with pytest.raises(poptorch.Error, match="Please set showCompilationProgressBar option"):
        trained(options, 2).compilationTime()


def test_tiles_and_host_have_the_same_times():
    """Latencies do not depend on who computed the values."""
    times = []
    for on_tiles in (False, True):
        model = trained(options_of().useIpuModel(on_tiles), 2)
        times.append(model.getLatency())
    assert times[0] == times[1]


class _Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_bar():
    """The bar goes from 0 to 100 on one line of a terminal, and is silent elsewhere."""
    terminal = _Terminal()
    with ProgressBar("Graph compilation", True, terminal) as bar:
        bar.part(0, 60)(1, 2)
    shown = terminal.getvalue()
    assert shown.startswith("\rGraph compilation:   0%")
    assert " 30%" in shown
    assert shown.endswith("100%|" + "█" * 20 + "|\n")
    for is_wanted, stream in ((False, _Terminal()), (True, io.StringIO())):
        with ProgressBar("Graph compilation", is_wanted, stream):
            pass
        assert not stream.getvalue()


def test_settings_that_are_not_modelled_are_named(capfd):
    """Compiling a tile program says which settings do not change it; the host needs no word."""
    options = poptorch.Options().logCycleCount(True)
    elsewhere = poptorch.TensorLocationSettings().useOnChipStorage(False)
    options.TensorLocations.setWeightLocation(elsewhere.useIOTilesToLoad(True))
    options.syncPattern(poptorch.SyncPattern.SinglePipeline)
    model = trained(options, 2)
    assert "does not model" not in capfd.readouterr().err
    model.cycleCount()
    (line,) = [text for text in capfd.readouterr().err.splitlines() if "does not model" in text]
    assert "useIOTilesToLoad" in line
    for name in ("setWeightLocation", "syncPattern"):
        assert name not in line

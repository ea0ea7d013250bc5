"""Engines, models and loaders record themselves in the system trace."""

import os
import shutil

import numpy as np
import pytest

import pva
import tremula as tr
from tremula.vision.trace import recorder as trace
from tremula.vision.trace.reader import TraceReader


@pytest.fixture(autouse=True)
def closed(monkeypatch):
    """No trace is open before or after a test."""
    monkeypatch.delenv("PVTI_OPTIONS", raising=False)
    trace.stop()
    yield
    trace.stop()


def events_of(reader: TraceReader) -> list[tuple[str, str]]:
    """(channel, label) of all events."""
    events = reader.events
    pairs = zip(events.channel.tolist(), events.label.tolist(), strict=True)
    return [(reader.channels[channel], reader.labels[label]) for channel, label in pairs]


def test_callbacks_of_an_engine(tmp_path):
    """Stream callbacks are events inside the run that calls them; so are host reads."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=2).create_device())
    x = graph.add_variable(tr.FLOAT, [4], "x", mapping="linear")
    stream = graph.add_host_to_device_fifo("numbers", tr.FLOAT, 4)
    graph.create_host_read("x", x)
    engine = tr.Engine(graph, tr.Copy(stream, x)).load()
    engine.connect_stream_to_callback("numbers", lambda chunk: chunk.fill(3))
    path = trace.start(tmp_path)
    engine.run()
    assert engine.read_tensor("x").tolist() == [3] * 4
    trace.stop()
    with pva.openTrace(path) as reader:
        (thread,) = reader.processes[0].threads
        run, read = thread.events
        (fetch,) = run.children()
        assert (run.label, read.label) == ("Engine.run", "Engine.read_tensor")
        assert (fetch.label, fetch.metadata) == ("StreamCallback.fetch", '{"stream": "numbers"}')


def small_model(options=None):
    import torch
    from torch import nn

    import poptorch

    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x, labels):
            scores = self.layer(x)
            return scores, nn.functional.cross_entropy(scores, labels)

    torch.manual_seed(0)
    model = WithLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return poptorch.trainingModel(model, options, optimizer)


def test_a_training_run(tmp_path):
    """Loading, compiling, each call, weights and the loss of each call are in the trace."""
    import torch

    import poptorch

    path = trace.start(tmp_path)
    options = poptorch.Options().deviceIterations(2)
    labels = torch.tensor([0, 1] * 8, dtype=torch.int32)
    data = torch.utils.data.TensorDataset(torch.randn(16, 4), labels)
    model = small_model(options)
    losses = [float(model(*batch)[1]) for batch in poptorch.DataLoader(options, data, 2)]
    model.copyWeightsToHost()
    trace.stop()
    with pva.openTrace(path) as reader:
        result = events_of(reader)
        series = {one["graph"]: one for one in reader.series}
    of_model = [label for channel, label in result if channel == "poptorch.trainingModel"]
    assert of_model.count("call") == of_model.count("run") == len(losses) == 4
    assert {"compile", "copyWeightsToDevice", "copyWeightsToHost"} <= set(of_model)
    assert result.count(("compilation", "capture")) == 1
    assert result.count(("poptorch.DataLoader", "load batch")) == 5  # the last finds the end
    assert series["loss"]["value"] == pytest.approx(losses)
    assert series["loss"]["name"] == "training"


@pytest.mark.slow
def test_the_loading_process_has_a_trace_of_its_own(tmp_path):
    """Waiting is in the parent's trace, loading in another file beside it."""
    import torch

    import poptorch

    path = trace.start(tmp_path)
    loader = poptorch.AsynchronousDataAccessor(list(torch.arange(4.0).view(4, 1)))
    assert len(list(loader)) == 4
    loader.terminate()
    trace.stop()
    channel = "poptorch.AsynchronousDataAccessor"
    with pva.openTrace(path) as reader:
        assert events_of(reader).count((channel, "wait for batch")) >= 4
    (other,) = set(tmp_path.glob("*.pvti")) - {path}
    with pva.openTrace(other) as reader:
        result = events_of(reader)
        assert {(channel, "load batch"), (channel, "write batch")} <= set(result)
        (thread,) = reader.processes[0].threads
        assert thread.name == "AsynchronousDataAccessor"
        assert reader.processes[0].pid != os.getpid()


def test_sums_over_processes(tmp_path):
    """What processes that train together wait for is in the channel popdist."""
    import torch
    import torch.distributed as dist

    from tremula.ir.host.programs.distributed import sum_over_processes

    path = trace.start(tmp_path)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        (total,) = sum_over_processes([torch.ones(3)])
    finally:
        dist.destroy_process_group()
    trace.stop()
    assert total.tolist() == [1, 1, 1]
    with pva.openTrace(path) as reader:
        assert events_of(reader) == [("popdist", "sum gradients")]


def test_a_profiled_model_opens_a_trace(tmp_path):
    """enableProfiling leaves a trace in its folder, and an open one goes on instead."""
    import poptorch

    small_model(poptorch.Options().enableProfiling(tmp_path / "mine"))
    assert trace.current_path().parent == tmp_path / "mine"
    before = trace.start(tmp_path)
    small_model(poptorch.Options().enableProfiling(tmp_path / "mine"))
    assert trace.current_path() == before


def test_channels_of_poptorch(tmp_path):
    """poptorch.profiling.Channel records what a script marks."""
    from poptorch.profiling import Channel

    path = trace.start(tmp_path)
    with Channel("mine").tracepoint("validation"):
        pass
    trace.stop()
    with pva.openTrace(path) as reader:
        assert events_of(reader) == [("mine", "validation")]


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_leaves_the_trace_to_its_parent(tmp_path):
    """A forked process records nothing, and the parent's trace stays whole."""
    path = trace.start(tmp_path)
    channel = trace.channel("mine")
    child = os.fork()
    if child == 0:
        channel.instant("in the child")
        os._exit(0 if trace.current_path() is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    channel.instant("in the parent")
    trace.stop()
    with pva.openTrace(path) as reader:
        assert events_of(reader) == [("mine", "in the parent")]


def test_a_trace_that_cannot_be_written_ends(tmp_path, recwarn):
    """The program goes on without it, with one warning."""
    trace.start(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")
    trace.channel("mine").instant("lost")
    trace.stop()
    assert "can no longer be written" in str(recwarn.pop(RuntimeWarning).message)
    trace.channel("mine").instant("not recorded")


def test_the_host_is_measured(tmp_path):
    """Memory of the process and its share of the processors, unless other channels are chosen."""
    path = trace.start(tmp_path)
    sum(np.arange(2_000_000).tolist())
    trace.stop()
    with pva.openTrace(path) as reader:
        series = {one["graph"]: one for one in reader.series}
        assert series["host memory"]["unit"] == "MiB"
        assert len(series["host memory"]["value"]) >= 2
        assert series["host utilisation"]["value"].max() > 0
    with pva.openTrace(_recorded(tmp_path, only=["mine"])) as reader:
        assert reader.series == []


def _recorded(folder, only):
    path = trace.start(folder, only=only)
    trace.stop()
    return path

"""Reports that the page's tests look at: a small network, another version of it, a long program."""

from pathlib import Path

import tremula as tr
from tests.vision.sample_reports import long_executable
from tremula.poplibs import poplin, popnn, popops
from tremula.runtime.forecast import forecast
from tremula.vision.report.write import write_report
from tremula.vision.trace import recorder as trace

N_BATCH, N_INPUTS, N_CLASSES, N_TILES = 16, 64, 10, 96
# A name that would run, if a page took it for HTML.
EVIL = "<img src=x onerror=alert(1)>"


def train_small_network(folder: Path, n_hidden: int = 48, *, with_trace: bool = False) -> Path:
    """Two layers, trained for four batches, twice, with a report; returns the report's folder."""
    options = {"autoReport.all": "true", "autoReport.directory": str(folder)}
    if with_trace:
        trace.start(folder)
    engine = _engine(n_hidden, options)
    loop = trace.channel("loop")
    for epoch in range(2):
        with loop.span("epoch"), loop.span("run"):
            engine.run("train")
        trace.Graph("loss", "nats").series("training").add(2.3 - epoch)
    if with_trace:
        loop.instant("trained")
        trace.stop()
    del engine  # writes its report
    return folder


def _engine(n_hidden: int, options: dict[str, str]) -> tr.Engine:
    device = tr.IPUModel("bow", tiles_per_ipu=N_TILES).create_device()
    graph = tr.Graph(device)
    pixels = graph.add_variable(tr.FLOAT, [N_BATCH, N_INPUTS], "pixels", mapping="linear")
    labels = graph.add_variable(tr.UNSIGNED_INT, [N_BATCH], EVIL, mapping="linear")
    first = graph.add_variable(tr.FLOAT, [N_INPUTS, n_hidden], "layer1/weights", mapping="linear")
    second = graph.add_variable(tr.FLOAT, [n_hidden, N_CLASSES], "layer2/weights", mapping="linear")
    for weights in (first, second):
        graph.set_initial_value(weights, 0.01)
    graph.set_initial_value(pixels, 0.5)
    graph.set_initial_value(labels, 3)
    train = tr.Sequence()
    hidden = poplin.mat_mul(graph, pixels, first, train, "layer1/product")
    popnn.non_linearity_in_place(graph, hidden, train, "layer1/relu", kind="RELU")
    scores = poplin.mat_mul(graph, hidden, second, train, "layer2/product")
    chances = popnn.softmax(graph, scores, train, "softmax")
    _, errors, _ = popnn.calc_loss(
        graph, chances, labels, train, kind="CROSS_ENTROPY_LOSS", has_num_correct=True
    )
    gradient = poplin.mat_mul(graph, hidden.transpose(), errors, train, "layer2/gradient")
    popops.scaled_add_to(graph, second, gradient, -0.1, train, "layer2/update")
    engine = tr.Engine(graph, {"train": tr.Repeat(4, train)}, options)
    engine.load(device)
    return engine


def train_on_chips(folder: Path, n_ipus: int) -> Path:
    """A product spread over several chips, run once, with a report."""
    device = tr.IPUModel("bow", n_ipus=n_ipus, tiles_per_ipu=24).create_device()
    graph = tr.Graph(device)
    left = graph.add_variable(tr.FLOAT, [96, 64], "left", mapping="linear")
    right = graph.add_variable(tr.FLOAT, [64, 96], "right", mapping="linear")
    for values in (left, right):
        graph.set_initial_value(values, 0.5)
    program = tr.Sequence()
    poplin.mat_mul(graph, left, right, program, "product")
    options = {"autoReport.all": "true", "autoReport.directory": str(folder)}
    engine = tr.Engine(graph, program, options)
    engine.load(device)
    engine.run()
    del engine  # writes its report
    return folder


def long_report(folder: Path, n_cells: int) -> Path:
    """A report with this many cells of steps × 1,472 tiles."""
    executable = long_executable(n_cells // 1472, 1472)
    write_report(folder, executable, forecast(executable), keeps_executable=False)
    return folder

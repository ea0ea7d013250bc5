"""The PopTorch figures: host speed against PyTorch, tile execution, compile times, the census."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from benchmarks.figures import Figure, Suite
from benchmarks.measure import peak_rss_of, ratio
from benchmarks.poptorch import gpu
from benchmarks.poptorch.steps import our_model, plain_step

SUITE = Suite("poptorch")
GIB = 2**30
_CPU_CASES = ("mnist", "cifar", "gpt2-tiny", "gpt2-tiny-50257", "lstm")


def _cpu_figure(name: str, host: str, compiled: str) -> Figure:
    from benchmarks.poptorch.models import cases

    case = cases()[name]
    model, batch = our_model(case, host=host, device="cpu")
    plain = plain_step(case, compiled=compiled)
    measured = ratio(lambda: model(*batch), lambda: plain(*batch), min_time_s=0.2)
    what = "torch.compile" if compiled else "eager"
    return Figure.of(f"{host}-{name}", measured.value, f"× {what}", "<= 1.05")


@SUITE.measurement("eager")
def eager() -> Iterator[Figure]:
    """A training step of ours, eager, against the same step of plain PyTorch."""
    for name in _CPU_CASES:
        yield _cpu_figure(name, "eager", "")


@SUITE.measurement("inductor")
def inductor() -> Iterator[Figure]:
    """Models compiled by Inductor, against torch.compile."""
    for name in _CPU_CASES:
        yield _cpu_figure(name, "inductor", "default")


@SUITE.measurement("half-cpu")
def half_cpu() -> Iterator[Figure]:
    """A training step of a half model on a CPU, as models run by default, against one in float."""
    from benchmarks.poptorch.models import half_cases, in_half

    for name, case in half_cases().items():
        halves, half_batch = our_model(in_half(case), device="cpu")
        floats, batch = our_model(case, device="cpu")
        measured = ratio(lambda: halves(*half_batch), lambda: floats(*batch), min_time_s=0.2)  # noqa: B023
        yield Figure.of(f"half-cpu-{name}", measured.value, "× float", "<= 1.3")


@SUITE.measurement("tile-step")
def tile_step() -> Iterator[Figure]:
    """One MNIST CNN training step, batch 16, every vertex executed: equal to host, and how fast."""
    import torch

    import poptorch
    from tremula.demo.classifiers import WithLoss, mnist_cnn

    torch.manual_seed(0)
    start = WithLoss(mnist_cnn()).eval()  # without dropout both executions compute the same
    x, y = torch.randn(16, 1, 28, 28), torch.randint(0, 10, (16,))
    result = {}
    for tiles in (False, True):
        model = copy.deepcopy(start)
        options = poptorch.Options().useIpuModel(tiles)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        wrapped = poptorch.trainingModel(model, options, optimizer)
        _, loss = wrapped(x, y)
        wrapped.copyWeightsToHost()
        result[tiles] = [loss, *(p.detach().clone() for p in model.parameters())]
    worst = max(
        float((a - b).abs().max() / b.abs().max().clamp_min(1e-6))
        for a, b in zip(result[True], result[False], strict=True)
    )
    yield Figure.of("tiles-equal-host", worst, "relative", "<= 1e-4")
    plain_model = copy.deepcopy(start)
    plain_optimizer = torch.optim.SGD(plain_model.parameters(), lr=0.01, momentum=0.9)

    def plain() -> None:
        plain_optimizer.zero_grad()
        plain_model(x, y)[1].backward()
        plain_optimizer.step()

    measured = ratio(lambda: wrapped(x, y), plain)
    yield Figure.of("tiles-mnist-step", measured.value, "× eager", "<= 30")


_FIRST_RESULT = """
import json, time, torch, poptorch
from benchmarks.poptorch.models import LanguageModel
from tremula.demo.classifiers import WithLoss, mnist_cnn
torch.manual_seed(0)
if {gpt!r}:
    model, batch = LanguageModel(12, 768, 12), (torch.randint(0, 50257, (1, 128)),)
else:
    model, batch = WithLoss(mnist_cnn()), (torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,)))
wrapped = poptorch.trainingModel(model, optimizer=torch.optim.AdamW(model.parameters()))
began = time.perf_counter()
wrapped(*batch)
print(json.dumps(time.perf_counter() - began))
"""


@SUITE.measurement("first-result")
def first_result() -> Iterator[Figure]:
    """From the first call to the first result, eager, training, in a fresh process."""
    for name, gpt, bar in (("mnist", False, "<= 3"), ("gpt2-small", True, "<= 20")):
        used = peak_rss_of(_FIRST_RESULT.format(gpt=gpt))
        seconds = json.loads(used.output.strip().splitlines()[-1])
        yield Figure.of(f"first-result-{name}", seconds, "s", bar)


_IMPORT = """
import time, torch
began = time.process_time()
import poptorch
poptorch.trainingModel, poptorch.Options
print(time.process_time() - began)
"""


@SUITE.measurement("import")
def import_time() -> Iterator[Figure]:
    """`import poptorch` and its first names, after PyTorch; the best of five fresh processes."""
    best = min(float(peak_rss_of(_IMPORT).output) for _ in range(5))
    yield Figure.of("import-seconds", best, "s", "<= 0.3")


_COMPILE = """
import json, os, sys, tempfile, time, torch, poptorch
from benchmarks.poptorch.models import LanguageModel, sharded
from tremula.demo.classifiers import WithLoss, mnist_cnn
from tremula.garden.models.resnet import resnet50
torch.manual_seed(0)
kind, cache = {kind!r}, {cache!r}
options = poptorch.Options().useIpuModel(False)
if cache:
    options.enableExecutableCaching(cache)
if kind == "mnist":
    model = WithLoss(mnist_cnn())
    batch = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
    wrapped = poptorch.trainingModel(model, options)
elif kind == "gpt2-small":
    model = sharded(LanguageModel(12, 768, 12).eval(), layers_per_ipu=4)
    batch = (torch.randint(0, 50257, (1, 128)),)
    strategy = poptorch.ShardedExecution(poptorch.AutoStage.SameAsIpu)
    wrapped = poptorch.inferenceModel(model, options.setExecutionStrategy(strategy))
else:
    model, batch = resnet50().eval(), (torch.randn(4, 3, 224, 224),)
    wrapped = poptorch.inferenceModel(model, options)
wrapped.compile(*batch)
began = time.perf_counter()
wrapped.tile_program().timing(has_run=False)
print(json.dumps(time.perf_counter() - began))
"""


@SUITE.measurement("tile-compile")
def tile_compile() -> Iterator[Figure]:
    """Building and compiling whole tile programs, and taking them from the executable cache.

    Both up to the cycles of a call: what a cycle count, a latency or a report waits for.
    That loads no kernels; tile execution loads them afterwards.
    """
    import tempfile

    for kind, bar in (("mnist", "<= 8"), ("gpt2-small", "<= 60"), ("resnet50", "<= 60")):
        with tempfile.TemporaryDirectory() as cache:
            first = peak_rss_of(_COMPILE.format(kind=kind, cache=cache))
            again = peak_rss_of(_COMPILE.format(kind=kind, cache=cache))
        seconds = json.loads(first.output.strip().splitlines()[-1])
        yield Figure.of(f"tile-compile-{kind}", seconds, "s", bar)
        yield Figure.of(f"tile-compile-memory-{kind}", first.peak_bytes / GIB, "GiB", "<= 8")
        seconds = json.loads(again.output.strip().splitlines()[-1])
        yield Figure.of(f"tile-cache-{kind}", seconds, "s", "<= 1.5")


@SUITE.measurement("mnist-epoch")
def mnist_epoch() -> Iterator[Figure]:
    """One epoch of MNIST, the same batches in the same order, by plain PyTorch and by ours.

    Without dropout: a compiled model draws from a separate generator, and two epochs that differ
    in their masks alone differ by some tenths of a point.
    """
    import torch
    from torch import nn

    import poptorch
    from tremula.demo.classifiers import WithLoss, mnist_cnn
    from tremula.garden.models.datasets.mnist import Mnist

    training, test = Mnist(train=True), Mnist(train=False)
    n_batch, n_iterations = 16, 50  # 75 calls are an epoch exactly
    order = torch.randperm(len(training), generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    layers = [m for m in mnist_cnn().children() if not isinstance(m, nn.Dropout)]
    models = [WithLoss(nn.Sequential(*layers))]
    models.append(copy.deepcopy(models[0]))
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05) for model in models]
    options = poptorch.Options().deviceIterations(n_iterations)
    ours = poptorch.trainingModel(models[0], options, optimizers[0])
    for part in order.split(n_batch * n_iterations):
        ours(training.images[part], training.labels[part])
    ours.copyWeightsToHost()
    for part in order.split(n_batch):
        optimizers[1].zero_grad()
        models[1](training.images[part], training.labels[part])[1].backward()
        optimizers[1].step()
    own, plain = (_accuracy(model, test) for model in models)
    yield Figure.of("mnist-epoch-accuracy", own, "%", ">= 97")
    yield Figure.of("mnist-epoch-difference", abs(own - plain), "points", "<= 0.3")


def _accuracy(model: Any, data: Any) -> float:  # noqa: ANN401
    """Per cent of a data set that a classifier gets right, in plain PyTorch."""
    import torch

    with torch.no_grad():
        scores = model.eval().model(data.images)
    return 100 * float((scores.argmax(1) == data.labels).double().mean())


_OP_DB_BARS = {
    ("host", "forward"): ">= 99",
    ("host", "gradient"): ">= 98",
    ("tiles", "forward"): ">= 92",
    ("tiles", "gradient"): ">= 88",
}


@SUITE.measurement("op-db")
def op_db() -> Iterator[Figure]:
    """How many operators of PyTorch's own database equal PyTorch in all their samples."""
    from tests.frontends.poptorch.op_db import sweep  # loads PyTorch
    from tests.frontends.poptorch.op_db_rows import counts

    for (execution, kind), count in counts(sweep()).items():
        bar = _OP_DB_BARS[execution, kind]
        yield Figure.of(f"op-db-{execution}-{kind}", count.percent, "% of operators", bar)


@SUITE.measurement("models")
def models() -> Iterator[Figure]:
    """How many models train a step as plain PyTorch does."""
    from tests.frontends.poptorch import model_sweep  # loads PyTorch

    rows = list(model_sweep.sweep())
    for execution, bar in ((model_sweep.HOST, ">= 97"), (model_sweep.TILES, ">= 90")):
        share = model_sweep.percent(rows, execution)
        yield Figure.of(f"models-{execution}", share, "% of models", bar)


gpu.add_to(SUITE)

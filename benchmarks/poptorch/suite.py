"""The PopTorch figures: host speed against PyTorch, tile execution, compile times, the census."""

import copy
import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.compile_modes import compile_modes
from benchmarks.figures import Figure, Suite
from benchmarks.measure import peak_rss_of, ratio

if TYPE_CHECKING:  # PyTorch is loaded where it is used
    import poptorch
    from benchmarks.poptorch.models import Case

SUITE = Suite("poptorch")
GIB = 2**30
_CPU_CASES = ("mnist", "cifar", "gpt2-tiny", "gpt2-tiny-50257", "lstm")
# Name, precision of float32 products on both sides, and the least ratio to eager.
_GPU_CASES = (
    ("mnist", "highest", ">= 4"),
    ("gpt2-tiny", "highest", ">= 4"),
    ("gpt2-tiny-50257", "high", ">= 5"),
    # In full float32 the output layer's products bind both sides, at the GPU's peak.
    ("gpt2-tiny-50257", "highest", ">= 3"),
    ("gin-mlp", "highest", ">= 4"),
)


def _plain_step(
    case: "Case", device: str = "cpu", compiled: str = "", seed: int = 0
) -> Callable[..., object]:
    """The step as a PyTorch script writes it: zero, forward, backward, update."""
    import torch

    torch.manual_seed(seed)
    model = case.make().to(device)
    optimizer = case.optimizer(model.parameters())
    run = model
    if compiled:
        mode = None if compiled == "default" else compiled
        run = torch.compile(model, mode=mode, dynamic=False)

    def step(*batch: torch.Tensor) -> object:
        optimizer.zero_grad()
        result = run(*batch)
        loss = result if isinstance(result, torch.Tensor) else result[-1]
        loss.backward()
        optimizer.step()
        return loss

    return step


def _our_model(
    case: "Case", n_iterations: int = 1, **settings: object
) -> "tuple[poptorch.PoplarExecutor, tuple]":
    """A training model that has run once, and its batch."""
    import torch

    import poptorch
    from tremula.ir.settings import configured

    torch.manual_seed(0)
    model = case.make()
    options = poptorch.Options().deviceIterations(n_iterations)
    wrapped = poptorch.trainingModel(model, options, case.optimizer(model.parameters()))
    batch = case.batch(case.n_batch * n_iterations)
    with configured(**settings):
        wrapped(*batch)
    return wrapped, batch


def _cpu_figure(name: str, host: str, compiled: str) -> Figure:
    from benchmarks.poptorch.models import cases

    case = cases()[name]
    model, batch = _our_model(case, host=host, device="cpu")
    plain = _plain_step(case, compiled=compiled)
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
        halves, half_batch = _our_model(in_half(case), device="cpu")
        floats, batch = _our_model(case, device="cpu")
        measured = ratio(lambda: halves(*half_batch), lambda: floats(*batch), min_time_s=0.2)  # noqa: B023
        yield Figure.of(f"half-cpu-{name}", measured.value, "× float", "<= 1.3")


@SUITE.measurement("gpu")
def gpu() -> Iterator[Figure]:
    """32 device iterations per call on a GPU, against eager and against reduce-overhead."""
    import torch

    if not torch.cuda.is_available():
        return
    from benchmarks.poptorch.models import cases

    for name, precision, bar in _GPU_CASES:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(precision)
        try:
            yield from _gpu_figures(cases(n_batch_scale=8)[name], precision, bar)
        finally:
            torch.set_float32_matmul_precision(before)


def _gpu_figures(case: "Case", precision: str, bar: str) -> Iterator[Figure]:
    import torch

    n = 32
    model, batch = _our_model(case, n, host="inductor-cuda-graph", device="cuda")
    parts = [[t.to("cuda") for t in case.batch(case.n_batch)] for _ in range(n)]
    name = case.name if precision == "highest" else f"{case.name}-tf32"
    for mode, least in (("", bar), ("reduce-overhead", ">= 1.1")):
        plain = _plain_step(case, "cuda", mode)

        def steps(plain: Callable = plain) -> None:
            for part in parts:
                plain(*part)
            torch.cuda.synchronize()

        measured = ratio(steps, lambda: model(*batch), min_time_s=0.2)
        unit = f"× faster than {mode or 'eager'}"
        yield Figure.of(f"gpu-{mode or 'eager'}-{name}", measured.value, unit, least)


# Models that are also measured in bfloat16, and with autocast.
_REDUCED = ("gpt2-small", "llama-110m", "bert-base", "vit-b")


@SUITE.measurement("gpu-large")
def gpu_large() -> Iterator[Figure]:
    """Large models with TF32: the best of torch.compile against ours after "auto" has chosen.

    Both begin with a batch in the memory of the host, and end when the loss is there.
    """
    from benchmarks.poptorch.models import large_cases

    yield from _large_figures(list(large_cases().values()), ">= 1.15")


@SUITE.measurement("gpu-bfloat16")
def gpu_bfloat16() -> Iterator[Figure]:
    """Large models in bfloat16, as `gpu-large` measures them; optimiser states are floats here."""
    from benchmarks.poptorch.models import in_bfloat16, large_cases

    yield from _large_figures([in_bfloat16(large_cases()[name]) for name in _REDUCED], ">= 1.1")


@SUITE.measurement("gpu-autocast")
def gpu_autocast() -> Iterator[Figure]:
    """Large models with float weights whose products are computed in bfloat16 by autocast."""
    from benchmarks.poptorch.models import large_cases, with_autocast

    yield from _large_figures([with_autocast(large_cases()[name]) for name in _REDUCED], ">= 1.05")


def _large_figures(cases: "list[Case]", bar: str) -> Iterator[Figure]:
    import torch

    if not torch.cuda.is_available():
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        for case in cases:
            yield from _large_figure(case, bar)
    finally:
        torch.set_float32_matmul_precision(before)


def _large_figure(case: "Case", bar: str) -> Iterator[Figure]:
    import time

    import torch

    model, batch = _our_model(case, host="auto", device="cuda")
    begin = time.perf_counter()
    _call_until_chosen(model, batch)
    yield Figure.of(f"gpu-until-fast-{case.name}", time.perf_counter() - begin, "s", "<= 10")
    result = {}
    for mode in compile_modes():
        plain = _plain_step(case, "cuda", mode)

        def step(plain: Callable = plain) -> None:
            plain(*(tensor.to("cuda", non_blocking=True) for tensor in batch))
            torch.cuda.synchronize()

        measured = ratio(step, lambda: model(*batch), min_time_s=0.2)
        print(f"{case.name}: ours {1e3 * measured.reference_s:.2f} ms,"
              f" {mode} {1e3 * measured.ours_s:.2f} ms", file=sys.stderr)  # fmt: skip
        result[mode] = measured.value
    if result:
        best = min(result, key=result.__getitem__)
        unit = f"× faster than torch.compile, {best}"
        yield Figure.of(f"gpu-large-{case.name}", result[best], unit, bar)


def _call_until_chosen(model: "poptorch.PoplarExecutor", batch: tuple) -> None:
    """Until the program that compiles in the background has decided."""
    from tremula.ir.host.programs.fastest import FastestProgram
    from tremula.ir.run.session import HostSession

    assert model._compiled is not None, "it has run once"
    session = model.compiled_program().session
    assert isinstance(session, HostSession), "on a GPU"
    program = session.program
    assert isinstance(program, FastestProgram), "with host='auto'"
    while not program.backend:
        model(*batch)


@SUITE.measurement("gpu-tokens")
def gpu_tokens() -> Iterator[Figure]:
    """GPT-2 small in bfloat16 with 16 × 1024 tokens a step, in tokens per second."""
    import torch

    if not torch.cuda.is_available():
        return
    from dataclasses import replace

    from benchmarks.poptorch.models import in_bfloat16, large_cases

    ids = lambda n: (torch.randint(0, 50257, (n, 1024)),)  # noqa: E731
    case = replace(in_bfloat16(large_cases()["gpt2-small"]), batch=ids, n_batch=16)
    model, batch = _our_model(case, host="inductor-cuda-graph", device="cuda")
    seconds = ratio(lambda: model(*batch), lambda: None, min_time_s=0.3).ours_s
    yield Figure.of("gpu-tokens-gpt2-small", 16 * 1024 / seconds, "tokens/s", ">= 400000")


@SUITE.measurement("gpu-curves")
def gpu_curves() -> Iterator[Figure]:
    """Loss curves of GPT-2 small in bfloat16 over 200 steps, against plain PyTorch's."""
    from benchmarks.poptorch.curves import loss_curves

    yield from loss_curves(_plain_step)


@SUITE.measurement("tile-step")
def tile_step() -> Iterator[Figure]:
    """One MNIST CNN training step, batch 16, every vertex executed: equal to host, and how fast."""
    import torch

    import poptorch
    from tremula.garden.models.classifiers import WithLoss, mnist_cnn

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
from tremula.garden.models.classifiers import WithLoss, mnist_cnn
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
from tremula.garden.models.classifiers import WithLoss, mnist_cnn
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
    from tremula.garden.models.classifiers import WithLoss, mnist_cnn
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

"""The PopXL figures: a step against PyTorch, how fast graphs are built, GPT-3 over many chips."""

import time
from collections.abc import Iterator

from benchmarks.figures import Figure, Suite
from benchmarks.measure import ratio

SUITE = Suite("popxl")


@SUITE.measurement("step")
def step() -> Iterator[Figure]:
    """A training step for MNIST, compiled, against plain PyTorch on this computer."""
    from benchmarks.popxl.programs import mnist_step, plain_step

    ours, theirs = mnist_step(), plain_step()
    gaps = [abs(ours() - theirs()) for _ in range(3)]
    yield Figure.of("popxl-loss", max(gaps), "of three steps", "<= 1e-5")
    measured = ratio(ours, theirs, clock=time.process_time)
    yield Figure.of("popxl-step", measured.value, "CPU, × PyTorch", "<= 1.1")


@SUITE.measurement("build")
def build() -> Iterator[Figure]:
    """Operations made in one graph."""
    from benchmarks.popxl.programs import build_operations

    build_operations(10)
    began = time.process_time()
    n = build_operations()
    seconds = time.process_time() - began
    yield Figure.of("popxl-build", n / seconds, "operations/s", ">= 5000")


@SUITE.measurement("gpt3-training")
def gpt3_training() -> Iterator[Figure]:
    """The tiny GPT over 2 · 2 · 2 replicas, ten steps, against Adam on the dense model."""
    from benchmarks.popxl.gpt3 import training_error

    yield Figure.of("gpt3-tiny-training", training_error(10), "largest error", "<= 1e-4")


@SUITE.measurement("gpt3-175b")
def gpt3_175b() -> Iterator[Figure]:
    """175 billion parameters for a Pod256: compiled, costed, its tables as written down."""
    from benchmarks.popxl.gpt3 import compiled_figures

    yield from compiled_figures("175b_pod256", "gpt3-175b", most_seconds=300)


@SUITE.measurement("gpt3-2.7b")
def gpt3_small() -> Iterator[Figure]:
    """2.7 billion parameters for a Pod64."""
    from benchmarks.popxl.gpt3 import compiled_figures

    yield from compiled_figures("2.7b_pod64", "gpt3-2.7b", most_seconds=120)

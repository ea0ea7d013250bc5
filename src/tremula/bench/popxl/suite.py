"""The PopXL figures: a step against PyTorch, and how fast graphs are built."""

import time
from collections.abc import Iterator

from tremula.bench.figures import Figure, Suite
from tremula.bench.measure import ratio

SUITE = Suite("popxl")


@SUITE.measurement("step")
def step() -> Iterator[Figure]:
    """A training step for MNIST, compiled, against plain PyTorch on this computer."""
    from tremula.bench.popxl.programs import mnist_step, plain_step

    ours, theirs = mnist_step(), plain_step()
    gaps = [abs(ours() - theirs()) for _ in range(3)]
    yield Figure.of("popxl-loss", max(gaps), "of three steps", "<= 1e-5")
    yield Figure.of("popxl-step", ratio(ours, theirs).value, "× PyTorch", "<= 1.1")


@SUITE.measurement("build")
def build() -> Iterator[Figure]:
    """Operations made in one graph."""
    from tremula.bench.popxl.programs import build_operations

    build_operations(10)
    began = time.process_time()
    n = build_operations()
    seconds = time.process_time() - began
    yield Figure.of("popxl-build", n / seconds, "operations/s", ">= 5000")

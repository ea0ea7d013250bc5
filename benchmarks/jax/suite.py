"""The JAX figures: against jax.jit, tile_map against Poplar's API, primitives, eigenvectors."""

import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.figures import Figure, Suite
from benchmarks.measure import ratio

SUITE = Suite("jax")


def _against_jax(function: Callable, operands: tuple) -> float:
    """Our time with Inductor as a share of jax.jit's, both after their first calls."""
    import jax

    import tremula
    import tremula.jax

    theirs, ours = jax.jit(function), tremula.jax.jit(function)
    with tremula.configured(host="inductor"):
        for compiled in (theirs, ours):
            jax.block_until_ready(compiled(*operands))
        measured = ratio(
            lambda: jax.block_until_ready(ours(*operands)),
            lambda: jax.block_until_ready(theirs(*operands)),
        )
    return measured.value


@SUITE.measurement("step")
def step() -> Iterator[Figure]:
    """A training step for MNIST, and a loop over rows, against jax.jit on this processor."""
    from benchmarks.jax import programs

    mlp = _against_jax(programs.mlp_step, programs.mlp_operands())
    yield Figure.of("jax-step", mlp, "× jax.jit", "<= 1.3")
    loop = _against_jax(programs.recurrent, programs.recurrent_operands())
    yield Figure.of("jax-scan", loop, "× jax.jit", "<= 1.3")


@SUITE.measurement("compile")
def compiling() -> Iterator[Figure]:
    """A jaxpr of 5,000 equations, translated, compiled and run once."""
    import tremula.jax
    from benchmarks.jax.programs import many_equations

    began = time.perf_counter()
    tremula.jax.jit(many_equations)(np.ones(16, np.float32))
    yield Figure.of("jax-compile", time.perf_counter() - began, "s", "<= 10")


@SUITE.measurement("tile-map")
def tile_map() -> Iterator[Figure]:
    """A vertex on each of 1,472 tiles in a loop of 1,000, against Poplar's API."""
    import tremula
    import tremula.jax
    from benchmarks.jax.programs import N_TILES, ROW, mapped_loop, poplar_loop

    x = np.ones((N_TILES, ROW), np.float32)
    engine, mapped = poplar_loop(x), tremula.jax.jit(mapped_loop)
    with tremula.configured(tiles="run"):
        mapped(x)
        measured = ratio(lambda: mapped(x), engine.run, rounds=3)
    yield Figure.of("tile-map", measured.value, "× Poplar", "<= 1.1")


@SUITE.measurement("primitives")
def primitives() -> Iterator[Figure]:
    """Of the primitives that have a translation, those whose samples all equal JAX."""
    for name, bar, choices in (
        ("jax-primitives-host", ">= 1", {}),
        ("jax-primitives-tiles", ">= 0.92", {"tiles": "run", "chip": "gc2"}),
    ):
        right, wrong = _sweep(choices)
        yield Figure.of(name, len(right - wrong) / len(right | wrong), "of all", bar)


def _sweep(choices: dict) -> tuple[set[str], set[str]]:
    """Primitives in samples that equal JAX, and in others."""
    import jax

    import tremula
    import tremula.jax
    from tests.frontends.jax.samples import SAMPLES, differences, primitives_of

    right: set[str] = set()
    wrong: set[str] = set()
    for name, (function, *operands) in SAMPLES.items():
        used = set(primitives_of(jax.make_jaxpr(function)(*operands).jaxpr))
        try:
            with tremula.configured(**choices):
                result = differences(function, *operands)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the sample does not pass
            result = [str(error).splitlines()[0]]
        print(*(f"{name}: {what}" for what in result), sep="\n", end="\n" if result else "")
        (wrong if result else right).update(used)
    return right, wrong


@SUITE.measurement("eigh")
def eigh() -> Iterator[Figure]:
    """Eigenvalues of a 256 x 256 matrix on tiles, against NumPy."""
    import tremula
    import tremula.jax
    from tessellate_ipu.linalg import ipu_eigh

    random = np.random.default_rng(0)
    x = random.standard_normal((256, 256)).astype(np.float32)
    x = (x + x.T) / 2
    with tremula.configured(tiles="run"):
        _, values = tremula.jax.jit(ipu_eigh)(x)
    expected = np.linalg.eigvalsh(x.astype(np.float64))
    error = np.abs(np.asarray(values) - expected).max() / np.abs(expected).max()
    yield Figure.of("eigh-error", float(error), "of the largest", "<= 1e-4")


@SUITE.measurement("import")
def importing() -> Iterator[Figure]:
    """`import tremula.jax` beyond JAX itself."""
    import json

    from benchmarks.measure import peak_rss_of

    script = (
        "import jax, json, time\nbegan = time.perf_counter()\nimport tremula.jax\n"
        "print(json.dumps(time.perf_counter() - began))\n"
    )
    seconds = min(float(json.loads(peak_rss_of(script).output)) for _ in range(3))
    yield Figure.of("jax-import", seconds, "s", "<= 0.5")

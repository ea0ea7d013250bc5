"""Multiplies batches of small matrices, real and complex, and asks what batching gains."""

import numpy as np

import tremula as tr
from tremula.garden.application import Findings, Settings, modelled_engine
from tremula.garden.applications.batched_gemm.program import (
    complex_gemm_engine,
    gemm_engine,
    multiplied,
)


def run(settings: Settings) -> Findings:
    n_problems, n_tiles = (32, 64) if settings.tiny else (736, 1472)
    shape = m, k, n = 32, 32, 32
    settings.show(f"{n_problems} products of {m} × {k} × {n} on {n_tiles} tiles")
    random = np.random.default_rng(2)
    a = random.standard_normal((n_problems, m, k)).astype(np.float32)
    b = random.standard_normal((n_problems, k, n)).astype(np.float32)

    batch = gemm_engine(n_problems, shape, n_tiles).load()
    c = multiplied(batch, a=a, b=b)["c"]
    modelled = modelled_engine(batch, settings, n_items=n_problems, unit="products/s")
    alone = gemm_engine(8, shape, n_tiles, way="one by one").load()
    multiplied(alone, a=a[:8], b=b[:8])
    gain = alone.report().total_cycles / 8 * n_problems / modelled.cycles
    settings.show(f"  all at once: {gain:.1f} times as fast as one after another")
    halves = gemm_engine(n_problems, shape, n_tiles, element=tr.HALF).load()
    in_halves = multiplied(halves, a=a.astype(np.float16), b=b.astype(np.float16))["c"]

    turned = random.standard_normal((2, n_problems, m, k)).astype(np.float32)
    complex_a, complex_b = a + 1j * turned[0], b + 1j * turned[1]
    four, complex_error = complex_cycles(complex_a, complex_b, n_tiles, "four products")
    three, gauss_error = complex_cycles(complex_a, complex_b, n_tiles, "three products")
    settings.show(f"  complex: {four:,} cycles by four products, {three:,} by three")
    return Findings(
        results={
            "relative_error": relative(c, a @ b),
            "half_error": relative(in_halves, a @ b),
            "complex_error": max(complex_error, gauss_error),
            "gain_by_batching": gain,
            "flops_share_of_peak": share_of_peak(batch, 2 * n_problems * m * k * n),
        },
        modelled=modelled,
        picture=np.abs(c[0]).astype(float),
    )


def complex_cycles(a: np.ndarray, b: np.ndarray, n_tiles: int, way: str) -> tuple[int, float]:
    """Cycles of a batch of complex products, and its error."""
    shape = a.shape[1], a.shape[2], b.shape[2]
    engine = complex_gemm_engine(len(a), shape, n_tiles, way=way).load()  # pyright: ignore[reportArgumentType]
    parts = {"ar": np.real(a), "ai": np.imag(a), "br": np.real(b), "bi": np.imag(b)}
    result = multiplied(engine, **{k: np.ascontiguousarray(v) for k, v in parts.items()})
    return engine.report().total_cycles, relative(result["cr"] + 1j * result["ci"], a @ b)


def relative(result: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(result - expected).max() / np.abs(expected).max())


def share_of_peak(engine: tr.Engine, n_flops: int) -> float:
    """Of the flops that the matrix units of all tiles could do with floats in the time."""
    report = engine.report()
    per_cycle = report.chip.flops_per_cycle_float_float * report.target.n_tiles
    return n_flops / (per_cycle * report.total_cycles)

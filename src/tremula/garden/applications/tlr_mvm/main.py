"""Compresses a covariance matrix, multiplies on tiles in three phases, and compares with dense."""

import numpy as np

import tremula as tr
from tremula.garden.application import Findings, Settings, modelled_engine
from tremula.garden.applications.tlr_mvm.compression import TlrMatrix, compressed, covariance
from tremula.garden.applications.tlr_mvm.program import BYTES_PER_PRODUCT, tlr_engine
from tremula.poplibs import poplin

TOLERANCE = 1e-4


def run(settings: Settings) -> Findings:
    n_side, n_block, n_tiles = (32, 128, 16) if settings.tiny else (64, 256, 64)
    dense = covariance(n_side)
    matrix = compressed(dense, n_block, TOLERANCE)
    settings.show(
        f"{matrix.n} × {matrix.n}, blocks of {n_block}: mean rank {matrix.ranks.mean():.1f}, "
        f"{matrix.compression:.1f} times smaller"
    )
    x = np.random.default_rng(5).standard_normal(matrix.n).astype(np.float32)
    engine = tlr_engine(matrix, n_tiles).load()
    engine.write_tensor("x", x)
    engine.run()
    y = engine.read_tensor("y")
    by_numpy = matrix.multiply(x, matrix.row_order())
    error = float(np.linalg.norm(y - dense @ x) / np.linalg.norm(dense @ x))
    settings.show(f"  error against the dense product {error:.1e}, tolerance {TOLERANCE:.0e}")
    modelled = modelled_engine(engine, settings, n_items=1, unit="products/s")
    share = bandwidth_share(matrix, engine)
    steps = engine.report().steps
    for name, cycles in zip(steps.name, steps.cycles.tolist(), strict=True):
        settings.show(f"  {name}: {cycles:,} cycles")
    dense_cycles = dense_product_cycles(matrix.n, n_tiles)
    settings.show(f"  dense on the same tiles: {dense_cycles / modelled.cycles:.1f} times as long")
    return Findings(
        results={
            "relative_error": error,
            "error_against_numpy": float(np.abs(y - by_numpy).max() / np.abs(by_numpy).max()),
            "compression": matrix.compression,
            "bandwidth_share": share,
            "gain_over_dense": dense_cycles / modelled.cycles,
        },
        modelled=modelled,
        picture=matrix.ranks.astype(float),
    )


def bandwidth_share(matrix: TlrMatrix, engine: tr.Engine) -> float:
    """Bytes the products load and store, of those that all tiles could in the time of a product."""
    report = engine.report()
    chip, n_tiles = report.chip, report.target.n_tiles
    n_products = 2 * matrix.total_rank * matrix.n_block
    possible = (chip.load_bytes_per_cycle + chip.store_bytes_per_cycle) * n_tiles
    return BYTES_PER_PRODUCT * n_products / (possible * report.total_cycles)


def dense_product_cycles(n: int, n_tiles: int, chip: str = "bow") -> int:
    """What PopLibs' product of the whole matrix with a vector takes, by the model."""
    graph = tr.Graph(tr.IPUModel(chip, tiles_per_ipu=n_tiles).create_device())
    program = tr.Sequence()
    matrix = poplin.create_mat_mul_input_lhs(graph, tr.FLOAT, (n, n), (n, 1), "matrix")
    x = poplin.create_mat_mul_input_rhs(graph, tr.FLOAT, (n, n), (n, 1), "x")
    poplin.mat_mul(graph, matrix, x, program, "dense")
    executable = tr.compile_graph(graph, program, {"debug.allowOutOfMemory": True})
    return tr.forecast(executable).total_cycles

"""Sparse products on tiles against torch.sparse, new patterns on the host, and the cost model."""

import time
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.figures import Figure
from benchmarks.measure import ratio
from benchmarks.sparse.torch_layouts import multiplied_layouts

if TYPE_CHECKING:  # loaded where they are used
    from tremula.validate import Checked, MeasuredRow

SIZE, N_COLUMNS, DENSITY, SIDE = 4096, 256, 1 / 16, 16
N_NON_ZEROS = 1_000_000


def tile_figures() -> Iterator[Figure]:
    """4096 × 4096, a sixteenth of its blocks of 16, half, by 256 columns: run vertex by vertex.

    torch.sparse has no halves on a CPU, so it multiplies floats.
    """
    import torch

    import tremula as tr
    from tremula.poplibs.popsparse import CSRMatrix, static

    warnings.filterwarnings("ignore", message="Sparse")  # its layouts are in beta
    rng = np.random.default_rng(0)
    present = np.kron(rng.random((SIZE // SIDE,) * 2) < DENSITY, np.ones((SIDE, SIDE), np.float32))
    dense = (present * rng.standard_normal((SIZE, SIZE))).astype(np.float32)
    pattern = CSRMatrix.from_dense(dense, (SIDE, SIDE))
    graph, sequence = tr.Graph(tr.IPUModel("bow").create_device()), tr.Sequence()
    params = static.MatMulParams.create_for_sparse_dense(1, SIZE, SIZE, N_COLUMNS)
    lhs = static.create_sparse_dense_mat_mul_lhs(graph, tr.HALF, params, pattern)
    rhs = static.create_sparse_dense_mat_mul_rhs(graph, tr.HALF, params, pattern)
    out = static.sparse_dense_mat_mul(graph, lhs, rhs, sequence)
    graph.create_host_write("values", lhs.values)
    graph.create_host_write("x", rhs)
    graph.create_host_read("out", out)
    engine = tr.Engine(graph, sequence).load()
    x = rng.standard_normal((SIZE, N_COLUMNS)).astype(np.float32)
    engine.write_tensor("values", lhs.product.to_device(pattern.nz_values).astype(np.float16))
    engine.write_tensor("x", x.astype(np.float16))
    engine.run()
    blocks, right = torch.from_numpy(dense).to_sparse_bsr((SIDE, SIDE)), torch.from_numpy(x)
    (theirs,) = multiplied_layouts([blocks], right)
    wanted = (theirs @ right).numpy()
    error = float(np.abs(engine.read_tensor("out").astype(np.float32) - wanted).max())
    yield Figure.of(
        "tile-product-error", error / float(np.abs(wanted).max()), "relative", "<= 0.01"
    )
    measured = ratio(engine.run, lambda: theirs @ right)
    yield Figure.of("tile-product-block-16", measured.value, "× torch", "<= 2")


def pattern_figures() -> Iterator[Figure]:
    """A new pattern of 10⁶ single non-zeros: checked, distributed over buckets and encoded."""
    import tremula as tr
    from tremula.poplibs.popsparse import CSRMatrix, dynamic

    rng = np.random.default_rng(0)
    target = tr.IPUModel("bow").create_target()
    params = dynamic.MatMulParams.create_with_num_non_zero_values(
        N_NON_ZEROS, 1, SIZE, SIZE, N_COLUMNS
    )
    partitioner = dynamic.Partitioner(params, tr.HALF, target)
    patterns = []
    for _ in range(3):
        row, column = np.divmod(np.sort(rng.permutation(SIZE * SIZE)[:N_NON_ZEROS]), SIZE)
        starts = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=SIZE))))
        values = rng.standard_normal(N_NON_ZEROS).astype(np.float16)
        patterns.append(CSRMatrix(SIZE, SIZE, values, column, starts))
    data = partitioner.create_sparsity_data(patterns[0])
    is_right = partitioner.to_csr(data.meta_info, data.nz_values) == patterns[0]
    yield Figure.of("new-pattern-is-right", float(is_right), "", "== 1")
    times = []
    for pattern in patterns * 10:  # the least: other programs on the machine only add to it
        begin = time.perf_counter()
        partitioner.create_sparsity_data(pattern)
        times.append(time.perf_counter() - begin)
    yield Figure.of("new-pattern-10⁶", 1000 * min(times), "ms", "<= 50")


def validation_figures() -> Iterator[Figure]:
    """Errors of the cost model over the published sparse products, and which side dense is on."""
    from tremula.validate import PUBLISHED, Score, read_rows, validate
    from tremula.validate.workloads.sparse import DYNAMIC, STATIC

    rows = read_rows(PUBLISHED)
    families = validate(rows, [STATIC, DYNAMIC]).families
    for name, family, bar in (("static", STATIC, "<= 12"), ("dynamic", DYNAMIC, "<= 15")):
        median = 100 * Score.of(families[family]).median
        yield Figure.of(f"validate-{name}-sparse", median, "% median", bar)
    dense = _dense_rates(validate([row for row in rows if _is_dense(row)]).checked)
    sides = [
        _wins(one.predicted, one.row, result[0]) == _wins(one.measured, one.row, result[1])
        for family in (STATIC, DYNAMIC)
        for one in families[family]
        if (result := dense.get(one.row.number("m"))) is not None
    ]
    yield Figure.of("validate-crossover", 100 * sum(sides) / len(sides), "% right", ">= 90")


def _is_dense(row: "MeasuredRow") -> bool:
    return "scaled by density" in row.workload or row.text("mode", "").startswith("dense")


def _dense_rates(rows: "Sequence[Checked]") -> dict[int, tuple[float, float]]:
    """By size, the (predicted, measured) rate of the dense product, counting all of it."""
    from tremula.validate.workloads.matmul import density_of

    return {
        one.row.number("m"): (
            one.predicted / density_of(one.row),
            one.measured / density_of(one.row),
        )
        for one in rows
    }


def _wins(value: float, row: "MeasuredRow", dense_rate: float) -> bool:
    """Whether the sparse product is faster: a ratio above 1, or the higher rate of non-zeros."""
    from tremula.validate.workloads.matmul import density_of

    return value > (1.0 if row.unit == "x" else dense_rate * density_of(row))

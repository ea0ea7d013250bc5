"""Sparse products of random patterns on one chip, at the width with the best rate.

Of all widths the planner names the best; that one is built and costed for the benchmark's pattern.
A width counts if its plan keeps to the usual share of the tiles' memory.
"""

from collections.abc import Callable

from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.target import IPUModel
from tremula.poplibs.popsparse import SparsityError, dynamic, static
from tremula.validate.rows import MeasuredRow
from tremula.validate.timing import Timing, time_program
from tremula.validate.workloads.matmul import best_dense_rate, density_of, type_of
from tremula.validate.workloads.popsparse_pattern import benchmark_pattern
from tremula.validate.workloads.table import ModelledValue, NoWorkload, workload

STATIC, DYNAMIC = "static sparse product", "dynamic sparse product"
PROPORTION = 0.6  # of a tile's memory, the libraries' default
# Work lists of single elements are long: wider ones take minutes to build, for 5 % more.
_ELEMENT_WIDTHS, _BLOCK_WIDTHS = (64, 128, 256), (1024, 2048, 4096, 8192, 16384, 32768, 65536)
_DYNAMIC_WIDTHS = (64, 128, 256, 512, *_BLOCK_WIDTHS)


def _best_width(widths: tuple[int, ...], cycles: Callable[[int], int | None]) -> int:
    result = {n: planned / n for n in widths if (planned := cycles(n)) is not None}
    if not result:
        raise NoWorkload("no width of it fits the tiles", hint="")
    return min(result, key=lambda n: result[n])


def static_rate(
    chip: str, shape: tuple[int, int], side: int, density: float, element: Type
) -> ModelledValue:
    """The best rate of non-zero products with a pattern known when compiling."""
    m, k = shape
    pattern = benchmark_pattern(m, k, side, density)
    graph = Graph(IPUModel(chip).create_target())

    def planned(n: int) -> int | None:
        params = static.MatMulParams.create_for_sparse_dense(1, m, k, n)
        try:
            return static.planned_cycles(graph, element, params, pattern)
        except SparsityError:  # it does not fit
            return None

    n = _best_width(_ELEMENT_WIDTHS if side == 1 else _BLOCK_WIDTHS, planned)
    params = static.MatMulParams.create_for_sparse_dense(1, m, k, n)

    def build(graph: Graph, sequence: Sequence) -> None:
        lhs = static.create_sparse_dense_mat_mul_lhs(graph, element, params, pattern)
        rhs = static.create_sparse_dense_mat_mul_rhs(graph, element, params, pattern)
        static.sparse_dense_mat_mul(graph, lhs, rhs, sequence)

    timing = time_program(chip, 1, build)
    return ModelledValue.of(timing, n_flops=2.0 * len(pattern.nz_values) * n)


def dynamic_rate(
    chip: str, shape: tuple[int, int], side: int, density: float, element: Type
) -> ModelledValue:
    """The best rate with a pattern given at run time, the steps of its propagation included."""
    m, k = shape
    target = IPUModel(chip).create_target()
    limit = PROPORTION * target.chip.n_bytes_per_tile

    def params_of(n: int) -> dynamic.MatMulParams:
        return dynamic.MatMulParams.create_with_nz_ratio(density, 1, m, k, n, block=side)

    def planned(n: int) -> int | None:
        try:
            plan = dynamic.Partitioner(params_of(n), element, target).plan
        except SparsityError:  # its words do not reach so far
            return None
        return plan.cycles if plan.n_bytes <= limit else None

    n = _best_width(_DYNAMIC_WIDTHS, planned)
    pattern = benchmark_pattern(m, k, side, density)
    partitioner = dynamic.Partitioner(params_of(n), element, target)
    known = partitioner.known(partitioner.create_sparsity_data(pattern))

    def build(graph: Graph, sequence: Sequence) -> None:
        lhs = dynamic.create_sparse_dense_mat_mul_lhs(graph, element, params_of(n))
        rhs = dynamic.create_sparse_dense_mat_mul_rhs(graph, element, params_of(n))
        dynamic.sparse_dense_mat_mul(graph, lhs, rhs, sequence, known=known)

    timing: Timing = time_program(chip, 1, build)
    return ModelledValue.of(timing, n_flops=2.0 * len(pattern.nz_values) * n)


Rate = Callable[[str, tuple[int, int], int, float, Type], ModelledValue]


def _predicted(row: MeasuredRow, chip: str, rate: Rate) -> ModelledValue:
    """A rate, or how many times the dense product's it is."""
    m, k = row.number("m"), row.number("k")
    side = row.number("block", int(row.text("mode", "b=1").partition("b=")[2]))
    element = type_of(row, "dtype", "fp16")
    density = density_of(row)
    result = rate(chip, (m, k), side, density, element)
    if row.unit != "x":
        return result
    dense = best_dense_rate(chip, m, k, element, density)
    ratio = (result.n_flops / result.cycles) / (dense.n_flops / dense.cycles)
    return ModelledValue(result.cycles, result.clock_hz, value=ratio)


@workload("static sparse|^sparse-dense matmul", STATIC, mode="static")
def static_product(row: MeasuredRow, chip: str) -> ModelledValue:
    """A pattern that is known when compiling."""
    return _predicted(row, chip, static_rate)


@workload("dynamic sparse|^sparse-dense matmul", DYNAMIC, mode="dynamic")
def dynamic_product(row: MeasuredRow, chip: str) -> ModelledValue:
    """A pattern that comes at run time."""
    return _predicted(row, chip, dynamic_rate)

"""Dense matrix products and convolutions on one chip, planned as PopLibs does."""

from tremula.base.floats import QuarterFormat
from tremula.base.types import FLOAT, HALF, QUARTER, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.target import IPUModel
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.poplin.product.conv_params import ConvParams
from tremula.poplibs.poplin.product.convolution import convolution, create_input, create_weights
from tremula.poplibs.poplin.product.mat_mul import (
    ProductOptions,
    create_mat_mul_grouped_input_lhs,
    create_mat_mul_grouped_input_rhs,
    create_mat_mul_input_lhs,
    create_mat_mul_input_rhs,
    mat_mul,
    mat_mul_grouped,
)
from tremula.poplibs.poputil import create_constant_metadata_tensor
from tremula.validate.rows import MeasuredRow
from tremula.validate.timing import Timing, time_program
from tremula.validate.workloads.table import ModelledValue, NoWorkload, workload

MATMUL, CONVOLUTION = "dense mat-mul", "convolution"
_TYPES = {"fp32": FLOAT, "float": FLOAT, "float32": FLOAT, "fp16": HALF, "half": HALF}
_TYPES |= {"fp8": QUARTER, "float8": QUARTER, "quarter": QUARTER, "float16": HALF, "f16": HALF}
_TYPES |= {"f32": FLOAT, "f8": QUARTER}
# PopLibs in 2019: its default of cycleBackoffPercent (ConvOptions.hpp; later without effect), and
# the transform its planner tries on every kernel (ConvPlan.cpp).
OPTIONS_OF_2019 = ProductOptions(cycle_backoff_percent=20.0, expands_dims=True)
# For "best n" rows: widths that are tried, powers of two as in the published sweep.
_WIDTHS = tuple(2**power for power in range(8, 17))


def element_type(text: str) -> Type:
    """The type that a row calls fp16, half, float …"""
    if text.lower() not in _TYPES:
        raise NoWorkload(f"type {text!r} has no product", hint="")
    return _TYPES[text.lower()]


def type_of(row: MeasuredRow, name: str, default: str) -> Type:
    return element_type(row.text(name, default))


def _metadata(graph: Graph, element: Type) -> Tensor | None:
    """Of 8-bit floats; all formats and scales take the same time."""
    is_small = element is QUARTER
    return create_constant_metadata_tensor(graph, QuarterFormat.F143) if is_small else None


def time_product(
    chip_name: str, shape: tuple[int, int, int], types: tuple[Type, Type], proportion: float
) -> Timing:
    """Weights [m, k] by [k, n], with operands in the plan's layout.

    PopLibs takes columns of the right operand as positions: here rows, of the transposed product.
    """
    (m, k, n), (element, partials) = shape, types
    options = ProductOptions(
        partials_type=partials,
        available_memory_proportion=proportion,
        columns_are_positions=False,
    )

    def build(graph: Graph, sequence: Sequence) -> None:
        sides = ((n, k), (k, m))
        metadata = _metadata(graph, element)
        left = create_mat_mul_input_lhs(
            graph, element, *sides, "left", metadata=metadata, **options
        )
        right = create_mat_mul_input_rhs(
            graph, element, *sides, "right", metadata=metadata, **options
        )
        mat_mul(graph, left, right, sequence, **options)

    return time_program(chip_name, 1, build)


def density_of(row: MeasuredRow) -> float:
    """The share of non-zeros, written as 1/16."""
    share, _, whole = row.text("density").partition("/")
    return float(share) / float(whole or 1)


@workload("dense matmul scaled by density|^sparse-dense matmul", MATMUL, mode="dense")
def best_product(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """The best rate over widths, counted as if only the given share of the products mattered."""
    m, k = row.number("m"), row.number("k")
    return best_dense_rate(chip_name, m, k, HALF, density_of(row))


def best_dense_rate(chip_name: str, m: int, k: int, element: Type, density: float) -> ModelledValue:
    """The best of the widths whose operands and result fit the chip; a share of products counts."""
    result, chip = [], IPUModel(chip_name).create_target().chip
    n_most = chip.n_tiles * chip.n_bytes_per_tile // element.n_bytes
    for n in (n for n in _WIDTHS if m * k + (m + k) * n <= n_most):
        timing = time_product(chip_name, (m, k, n), (element, element), 0.6)
        result.append(ModelledValue.of(timing, n_flops=density * 2.0 * m * k * n))
    return max(result, key=lambda one: one.n_flops / one.cycles)


@workload("(?<!sparse-)dense matmul|poplin.*matmul|largest square matmul", MATMUL)
def product(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """The product alone: operands are on their tiles, the result stays where it is made."""
    if row.unit == "elements":
        raise NoWorkload("it asks what fits, and not how long it takes", hint="")
    m, k, n = (row.number(name, row.number("n")) for name in "mkn")
    element = type_of(row, "dtype", "fp32")
    partials = type_of(row, "partials", "fp32" if element == FLOAT else "fp16")
    proportion = float(row.text("amp", "0.6"))
    timing = time_product(chip_name, (m, k, n), (element, partials), proportion)
    return ModelledValue.of(timing, n_flops=2.0 * m * k * n)


@workload("vertices of a dense matmul", MATMUL)
def product_vertices(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """The compute set that multiplies, as profiles list it: without exchange and sums of partials.

    Of a product of an ONNX model by PopRT: groups of [m, k] by [k, n].
    """
    m, k, n, n_groups = (row.number(name, 1) for name in ("m", "k", "n", "groups"))
    element = type_of(row, "dtype", "fp16")
    options = ProductOptions(partials_type=type_of(row, "partials", "fp16"))

    def build(graph: Graph, sequence: Sequence) -> None:
        sides = ((n_groups, m, k), (n_groups, k, n))
        metadata = _metadata(graph, element)
        left = create_mat_mul_grouped_input_lhs(
            graph, element, *sides, "left", metadata=metadata, **options
        )
        right = create_mat_mul_grouped_input_rhs(
            graph, element, *sides, "right", metadata=metadata, **options
        )
        mat_mul_grouped(graph, left, right, sequence, "product", **options)

    timing = time_program(chip_name, 1, build)
    names = [name for name, _, _ in timing.steps]
    cycles = timing.compute_of_steps[names.index("product/Convolve")]
    return ModelledValue(cycles, timing.clock_hz, n_flops=2.0 * n_groups * m * k * n)


def is_of_2019(row: MeasuredRow, chip_name: str) -> bool:
    """Whether PopLibs was that of SDK 1.0; rows of the GC2 that name no SDK are taken to be."""
    return row.sdk.startswith(("0.", "1.0")) if row.sdk else chip_name == "gc2"


@workload("convolution forward", CONVOLUTION)
def convolve(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """One layer, padded so that stride 1 keeps the size of the image."""
    kernel, n_groups = row.number("kernel"), row.number("groups", 1)
    params = ConvParams(
        type=type_of(row, "dtype", "fp16"),
        n_batch=row.number("batch"),
        field_shape=(row.number("in_hw"),) * 2,
        kernel_shape=(kernel, kernel),
        n_in_chans=row.number("in_c") // n_groups,
        n_out_chans=row.number("out_c") // n_groups,
        n_groups=n_groups,
        padding_lower=(kernel // 2,) * 2,
        padding_upper=((kernel - 1) // 2,) * 2,
        stride=(row.number("stride", 1),) * 2,
    )

    options = OPTIONS_OF_2019 if is_of_2019(row, chip_name) else ProductOptions()

    def build(graph: Graph, sequence: Sequence) -> None:
        metadata = _metadata(graph, params.type)
        acts = create_input(graph, params, "in", metadata=metadata, **options)
        weights = create_weights(graph, params, "weights", metadata=metadata, **options)
        convolution(graph, acts, weights, params, sequence, **options)

    timing = time_program(chip_name, 1, build)
    height, width = params.output_field_shape
    n_products = kernel * kernel * params.n_in_chans * row.number("out_c") * params.n_batch
    return ModelledValue.of(timing, n_flops=2.0 * n_products * height * width)

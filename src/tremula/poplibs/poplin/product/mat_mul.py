"""Matrix products: plain, grouped, accumulating; and operands laid out as products need them."""

import warnings
from collections.abc import Iterator
from typing import Any, TypedDict, Unpack

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, Type, as_type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.poplin.product.build import add_product, create_operand
from tremula.poplibs.poplin.product.conv_params import (
    check_result_type,
    check_type,
    matrix_problem,
    result_type,
    transposed_matrix_problem,
)
from tremula.poplibs.poplin.product.plan import ProductPlan
from tremula.poplibs.poplin.product.planner import PlanOptions, plan_product
from tremula.poplibs.poplin.product.transpose_operand import turn
from tremula.poplibs.poplin.product.vertices import conv_partial, conv_reduce
from tremula.poplibs.popops import scaled_add_to, zero
from tremula.poplibs.poputil import replayed
from tremula.poplibs.poputil.options import check_options
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

Shape = tuple[int, ...] | list[int]


class ProductOptions(TypedDict, total=False):
    """Options of a product: the types of result and partial sums, and its temporary memory.

    `cycle_backoff_percent` plans as PopLibs did in 2019, when 20 was its default: with its estimate
    of exchange then, and without a bound on memory, it takes the plan that needs least memory of
    those within this percentage of the fastest. 0, the default, plans as PopLibs does since 2020.
    With `expands_dims` a plan may move kernel dimensions into input channels, as PopLibs'
    `expandDims` does. With `enable_conv_dithering` it begins at a tile that a hash of its
    dimensions chooses, and else at the first, where weights of small products pile up.

    Partial sums of floats are always floats, those of 8-bit floats always halves: the matrix unit
    supports nothing else.
    """

    out_type: Type | str | None
    partials_type: Type | str
    available_memory_proportion: float
    cycle_backoff_percent: float
    columns_are_positions: bool | None  # None: as the planner finds cheaper
    expands_dims: bool
    enable_conv_dithering: bool


def mat_mul(
    graph: Graph, a: Tensor, b: Tensor, sequence: Sequence, name: str = "",
    **options: Unpack[ProductOptions],
) -> Tensor:  # fmt: skip
    """[m, k] x [k, n]: a new tensor [m, n]."""
    _check_ranks("mat_mul", a, b, 2)
    first, second = a.expand([0]), b.expand([0])
    return mat_mul_grouped(graph, first, second, sequence, name or "matMul", **options)[0]


def mat_mul_grouped(
    graph: Graph, a: Tensor, b: Tensor, sequence: Sequence, name: str = "",
    **options: Unpack[ProductOptions],
) -> Tensor:  # fmt: skip
    """[g, m, k] x [g, k, n]: a new tensor [g, m, n]."""
    return _product(graph, a, b, None, sequence, name or "matMulGrouped", options)


def mat_mul_with_output(
    graph: Graph, a: Tensor, b: Tensor, out: Tensor, sequence: Sequence, name: str = "",
    **options: Unpack[ProductOptions],
) -> None:  # fmt: skip
    """[m, k] x [k, n] into a tensor [m, n]."""
    _check_ranks("mat_mul_with_output", a, b, 2)
    first, second, result = a.expand([0]), b.expand([0]), out.expand([0])
    name = name or "matMul"
    mat_mul_grouped_with_output(graph, first, second, result, sequence, name, **options)


def mat_mul_grouped_with_output(
    graph: Graph, a: Tensor, b: Tensor, out: Tensor, sequence: Sequence, name: str = "",
    **options: Unpack[ProductOptions],
) -> None:  # fmt: skip
    """[g, m, k] x [g, k, n] into a tensor [g, m, n]; its type is the result's."""
    _check_operands("mat_mul_with_output", a, b)
    _check_result("mat_mul_with_output", a, b, out)
    options = {**options, "out_type": out.type}
    _product(graph, a, b, out, sequence, name or "matMulGrouped", options)


def mat_mul_acc(
    graph: Graph, c: Tensor, scale: float | Tensor, a: Tensor, b: Tensor, sequence: Sequence,
    name: str = "", **options: Unpack[ProductOptions],
) -> None:  # fmt: skip
    """C += scale * A x B, in place."""
    _check_ranks("mat_mul_acc", a, b, 2)
    first, second = a.expand([0]), b.expand([0])
    mat_mul_grouped_acc(
        graph, c.expand([0]), scale, first, second, sequence, name or "matMulAcc", **options
    )


def mat_mul_grouped_acc(
    graph: Graph, c: Tensor, scale: float | Tensor, a: Tensor, b: Tensor, sequence: Sequence,
    name: str = "", **options: Unpack[ProductOptions],
) -> None:  # fmt: skip
    """C += scale * A x B, group by group, in place."""
    name = name or "matMulGroupedAcc"
    _check_operands("mat_mul_acc", a, b)
    _check_result("mat_mul_acc", a, b, c)
    options = {**options, "out_type": c.type}
    added = _product(graph, a, b, None, sequence, name, options)
    scaled_add_to(graph, c, added, scale, sequence, f"{name}/accumulate")


# -- operands laid out for a product


def create_mat_mul_input_lhs(
    graph: Graph, type: Type | str, a_shape: Shape, b_shape: Shape, name: str = "",
    *, metadata: Tensor | None = None, **options: Unpack[ProductOptions],
) -> Tensor:  # fmt: skip
    """A new [m, k], laid out for mat_mul with a right operand of b_shape.

    8-bit floats need their `metadata`; see poputil.create_constant_metadata_tensor.
    """
    shapes = (1, *a_shape), (1, *b_shape)
    return create_mat_mul_grouped_input_lhs(
        graph, type, *shapes, name or "lhs", metadata=metadata, **options
    )[0]


def create_mat_mul_input_rhs(
    graph: Graph, type: Type | str, a_shape: Shape, b_shape: Shape, name: str = "",
    *, metadata: Tensor | None = None, **options: Unpack[ProductOptions],
) -> Tensor:  # fmt: skip
    """A new [k, n], laid out for mat_mul with a left operand of a_shape.

    8-bit floats need their `metadata`; see poputil.create_constant_metadata_tensor.
    """
    shapes = (1, *a_shape), (1, *b_shape)
    return create_mat_mul_grouped_input_rhs(
        graph, type, *shapes, name or "rhs", metadata=metadata, **options
    )[0]


def create_mat_mul_output(
    graph: Graph, type: Type | str, a_shape: Shape, b_shape: Shape, name: str = "",
    **options: Unpack[ProductOptions],
) -> Tensor:  # fmt: skip
    """A new [m, n], laid out as mat_mul's result; `type` is that of the operands."""
    shapes = (1, *a_shape), (1, *b_shape)
    return create_mat_mul_grouped_output(graph, type, *shapes, name or "out", **options)[0]


def create_mat_mul_grouped_input_lhs(
    graph: Graph, type: Type | str, a_shape: Shape, b_shape: Shape, name: str = "",
    *, metadata: Tensor | None = None, **options: Unpack[ProductOptions],
) -> Tensor:  # fmt: skip
    """A new [groups, m, k], laid out for mat_mul_grouped with a right operand of b_shape."""
    shapes = a_shape, b_shape
    return _created(graph, "left", as_type(type), *shapes, name or "lhs", options, metadata)


def create_mat_mul_grouped_input_rhs(
    graph: Graph, type: Type | str, a_shape: Shape, b_shape: Shape, name: str = "",
    *, metadata: Tensor | None = None, **options: Unpack[ProductOptions],
) -> Tensor:  # fmt: skip
    """A new [groups, k, n], laid out for mat_mul_grouped with a left operand of a_shape."""
    shapes = a_shape, b_shape
    return _created(graph, "right", as_type(type), *shapes, name or "rhs", options, metadata)


def create_mat_mul_grouped_output(
    graph: Graph, type: Type | str, a_shape: Shape, b_shape: Shape, name: str = "",
    **options: Unpack[ProductOptions],
) -> Tensor:  # fmt: skip
    """A new [groups, m, n], laid out as mat_mul_grouped leaves its result."""
    return _created(graph, "result", as_type(type), a_shape, b_shape, name or "out", options)


def mat_mul_plan(
    graph: Graph, type: Type | str, a_shape: Shape, b_shape: Shape,
    **options: Unpack[ProductOptions],
) -> ProductPlan:  # fmt: skip
    """The plan of a product of these shapes, [m, k] x [k, n] or grouped; see plan_report."""
    if len(a_shape) == 2 and len(b_shape) == 2:
        a_shape, b_shape = (1, *a_shape), (1, *b_shape)
    _check_shapes("mat_mul_plan", as_type(type), tuple(a_shape), tuple(b_shape))
    shapes = tuple(a_shape), tuple(b_shape)
    if _takes_columns(graph, as_type(type), *shapes, options):
        shapes = _turned_shapes(*shapes)
    return _plan(graph, as_type(type), *shapes, options)


# -- inside


@replayed
def _product(
    graph: Graph, a: Tensor, b: Tensor, out: Tensor | None, sequence: Sequence, name: str,
    options: ProductOptions,
) -> Tensor:  # fmt: skip
    _check_operands("mat_mul_grouped", a, b)
    if 0 in (*a.shape, *b.shape):
        return _empty_product(graph, a, b, out, sequence, name, options)
    if _can_turn(a, b) and _takes_columns(graph, a.type, a.shape, b.shape, options):
        a, b = b.dim_shuffle([0, 2, 1]), a.dim_shuffle([0, 2, 1])
        out = None if out is None else out.dim_shuffle([0, 2, 1])
        result = _rows_product(graph, a, b, out, sequence, name, options, is_transposed=False)
        return result.dim_shuffle([0, 2, 1])
    is_transposed = _is_transposed(a)
    return _rows_product(graph, a, b, out, sequence, name, options, is_transposed=is_transposed)


def _rows_product(
    graph: Graph, a: Tensor, b: Tensor, out: Tensor | None, sequence: Sequence, name: str,
    options: ProductOptions, *, is_transposed: bool,
) -> Tensor:  # fmt: skip
    """Rows of the left operand are positions, or, where it is transposed, summed over.

    Columns that became rows are never summed over: the matrix unit takes channels that are next to
    each other in memory, so what is stored otherwise is transposed first.
    """
    plan = _plan(graph, a.type, a.shape, b.shape, options, is_transposed=is_transposed)
    left = a.dim_shuffle([0, 2, 1]) if is_transposed else a
    operands = left.expand([1]), b.expand([1])
    result = out.expand([1]) if out is not None else None
    return add_product(graph, plan, *operands, sequence, name, result=result).squeeze([1])


def _can_turn(a: Tensor, b: Tensor) -> bool:
    """Whether the transposed product reads its operands no worse than this one.

    The result of a product that took columns is stored by columns, and so are weights that were
    created for it: turned, both are read in order.
    """
    return not _is_transposed(a) or _is_transposed(b)


def _is_transposed(a: Tensor) -> bool:
    """Whether its columns are contiguous: then reading it by columns beats transposing it."""
    return 1 not in a.shape[1:] and a.strides[1] == 1 and a.strides[2] != 1


def _empty_product(
    graph: Graph, a: Tensor, b: Tensor, out: Tensor | None, sequence: Sequence, name: str,
    options: ProductOptions,
) -> Tensor:  # fmt: skip
    """A sum of no products is zero."""
    if out is None:
        shape = (*a.shape[:2], b.shape[2])
        out = graph.add_variable(_out_type(a.type, options), shape, name, mapping="linear")
    if out.n_elems:
        zero(graph, out, sequence, f"{name}/zero")
    return out


@replayed
def _created(  # noqa: PLR0917 - all that a created operand depends on
    graph: Graph, operand: str, element: Type, a_shape: Shape, b_shape: Shape, name: str,
    options: ProductOptions, metadata: Tensor | None = None,
) -> Tensor:  # fmt: skip
    shapes = tuple(a_shape), tuple(b_shape)
    _check_shapes("create_mat_mul_…", element, *shapes)
    if 0 in (*a_shape, *b_shape):
        wanted = {"left": shapes[0], "right": shapes[1], "result": (*shapes[0][:2], shapes[1][2])}
        created = _out_type(element, options) if operand == "result" else element
        shape = wanted[operand]
        return graph.add_variable(created, shape, name, mapping="linear", metadata=metadata)
    if not _takes_columns(graph, element, *shapes, options):
        plan = _plan(graph, element, *shapes, options)
        return create_operand(graph, plan, operand, name, metadata=metadata).squeeze([1])
    plan = _plan(graph, element, *_turned_shapes(*shapes), options)
    operand = {"left": "right", "right": "left"}.get(operand, operand)
    created = create_operand(graph, plan, operand, name, metadata=metadata).squeeze([1])
    return created.dim_shuffle([0, 2, 1])


# How much cheaper columns must be by the planner's estimates, which are about that accurate. With
# more rows a worker passes ten positions by the weights of each pass, and that hides their load.
_GAIN_OF_COLUMNS, _FEW_ROWS = 0.9, 64


def _takes_columns(
    graph: Graph, element: Type, a_shape: Shape, b_shape: Shape, options: ProductOptions
) -> bool:
    """Whether columns of the right operand are positions, and rows of the left output channels.

    PopLibs makes a product into a convolution in this way (poplin/MatMul.cpp: the field is as wide
    as the result, output channels are rows of the left operand), and swaps operands where its
    planner finds that cheaper. Where both sides are wide the two cost alike, and rows are taken; of
    a few rows by a wide matrix, columns keep all workers of a tile busy.
    """
    chosen = options.get("columns_are_positions")
    if chosen is not None:
        return chosen
    if a_shape[1] >= min(b_shape[2], _FEW_ROWS):
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the plan that is taken alone
        rows = _plan(graph, element, a_shape, b_shape, options)
        columns = _plan(graph, element, *_turned_shapes(a_shape, b_shape), options)
    if rows.bound_was_met != columns.bound_was_met:
        return columns.bound_was_met
    return columns.cycles < _GAIN_OF_COLUMNS * rows.cycles


def _turned_shapes(a_shape: Shape, b_shape: Shape) -> tuple[Shape, Shape]:
    """Of the transposed operands, in the order in which they give the transposed product."""
    return (b_shape[0], b_shape[2], b_shape[1]), (a_shape[0], a_shape[2], a_shape[1])


def _out_type(element: Type, options: ProductOptions) -> Type:
    requested = options.get("out_type")
    result = result_type(element) if requested is None else as_type(requested)
    check_result_type(result, element, "the result of a product")
    return result


def plan_options(options: ProductOptions) -> PlanOptions:
    """The options a planner needs."""
    check_options(options, ProductOptions, "a product")
    return PlanOptions(
        as_type(options.get("partials_type", FLOAT)),
        options.get("available_memory_proportion", 0.6),
        options.get("cycle_backoff_percent", 0.0),
        options.get("expands_dims", False),
        options.get("enable_conv_dithering", False),
    )


def _plan(
    graph: Graph, element: Type, a_shape: Shape, b_shape: Shape, options: ProductOptions, *,
    is_transposed: bool = False,
) -> ProductPlan:  # fmt: skip
    n_groups, n_rows, n_inner = a_shape
    result = _out_type(element, options)
    make = transposed_matrix_problem if is_transposed else matrix_problem
    problem = make(n_groups, n_rows, n_inner, b_shape[2], element, result)
    return plan_product(graph, problem, plan_options(options))


def _check_ranks(what: str, a: Tensor, b: Tensor, rank: int) -> None:
    if a.rank != rank or b.rank != rank:
        raise PoplibsError(
            f"{what} got operands of shapes {list(a.shape)} and {list(b.shape)}, expected rank "
            f"{rank}.",
            source=user_source(),
            hint="use mat_mul for [m, k] x [k, n], mat_mul_grouped for [g, m, k] x [g, k, n]",
        )


def _check_operands(what: str, a: Tensor, b: Tensor) -> None:
    _check_ranks(what, a, b, 3)
    if a.type != b.type:
        raise PoplibsError(
            f"{what} got operands of {a.type} and {b.type}, expected one type.",
            source=user_source(),
            hint="cast one of them",
        )
    _check_shapes(what, a.type, a.shape, b.shape)


def _check_shapes(what: str, element: Type, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    check_type(element, what)
    if len(a) != 3 or len(b) != 3 or a[0] != b[0] or a[2] != b[1]:
        raise PoplibsError(
            f"{what} cannot multiply {list(a)} by {list(b)}: expected [g, m, k] by [g, k, n] with "
            "equal groups g and equal inner dimensions k.",
            source=user_source(),
            hint="transpose an operand, or give equal inner dimensions and groups",
        )


def _check_result(what: str, a: Tensor, b: Tensor, out: Tensor) -> None:
    wanted = (*a.shape[:2], b.shape[2])
    if out.shape != wanted:
        raise PoplibsError(
            f"{what} got a result of shape {list(out.shape)}, expected {list(wanted)}.",
            source=user_source(),
            hint="make it with create_mat_mul_output",
        )


__all__ = [
    "ProductOptions", "create_mat_mul_grouped_input_lhs",
    "create_mat_mul_grouped_input_rhs", "create_mat_mul_grouped_output",
    "create_mat_mul_input_lhs", "create_mat_mul_input_rhs", "create_mat_mul_output", "mat_mul",
    "mat_mul_acc", "mat_mul_grouped", "mat_mul_grouped_acc", "mat_mul_grouped_with_output",
    "mat_mul_plan", "mat_mul_with_output",
]  # fmt: skip


# -- registry: samples, NumPy references, errors ---------------------------------------------------


FAMILIES = (conv_partial, conv_reduce, turn)
TYPES = (FLOAT, HALF)
# Rounding of the result to half, and of partial sums where they are halves.
TOLERANCE = {"FLOAT": 2e-5, "HALF": 5e-3}
COMMON: dict[str, Any] = {"types": TYPES, "codelets": FAMILIES, "tolerance": TOLERANCE}
# [m, k] x [k, n]: single elements, odd sizes, a row, a column, long sums, several tiles, empty.
_SIZES = (
    (1, 1, 1), (3, 5, 7), (1, 40, 24), (40, 24, 1), (2, 300, 4), (33, 40, 21), (16, 64, 48),
    (4, 0, 3), (0, 4, 3),
)  # fmt: skip
_GROUPED = ((1, 2, 3, 4), (3, 5, 7, 9), (12, 4, 16, 4), (2, 16, 32, 8))


def random_values(random: np.random.Generator, element: Type, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(element.dtype)


def _wide(*arrays: np.ndarray) -> list[np.ndarray]:
    return [a.astype(np.float64) for a in arrays]


def _plain(a: np.ndarray, b: np.ndarray, **_: object) -> np.ndarray:
    """The product in 64 bits, rounded once."""
    first, second = _wide(a, b)
    return (first @ second).astype(a.dtype)


def _mat_mul_samples(element: Type, random: np.random.Generator) -> Iterator[Sample]:
    for m, k, n in _SIZES:
        yield Sample((random_values(random, element, m, k), random_values(random, element, k, n)))
    for options in (
        {"available_memory_proportion": 0.0},
        {"partials_type": "half"},
        {"cycle_backoff_percent": 50},
    ):
        operands = random_values(random, element, 20, 36), random_values(random, element, 36, 18)
        yield Sample(operands, options)


def _grouped_samples(element: Type, random: np.random.Generator) -> Iterator[Sample]:
    for g, m, k, n in _GROUPED:
        yield Sample(
            (random_values(random, element, g, m, k), random_values(random, element, g, k, n))
        )


def _with_output(graph: Graph, a: Tensor, b: Tensor, sequence: Sequence) -> Tensor:
    """Into a result laid out for the product, then into one that is not."""
    out = create_mat_mul_output(graph, a.type, a.shape, b.shape)
    mat_mul_with_output(graph, a, b, out, sequence)
    linear = graph.add_variable(a.type, out.shape, "linear", mapping="linear")
    mat_mul_with_output(graph, a, b, linear, sequence)
    return linear


def _accumulate(
    graph: Graph, c: Tensor, a: Tensor, b: Tensor, sequence: Sequence, *, scale: float
) -> None:
    mat_mul_acc(graph, c, scale, a, b, sequence)


def _accumulate_samples(element: Type, random: np.random.Generator) -> Iterator[Sample]:
    for (m, k, n), scale in zip(_SIZES[:5], (1.0, -0.5, 2.0, 1.0, 0.25), strict=True):
        shapes = (m, n), (m, k), (k, n)
        yield Sample(tuple(random_values(random, element, *s) for s in shapes), {"scale": scale})


def _accumulated(c: np.ndarray, a: np.ndarray, b: np.ndarray, scale: float) -> np.ndarray:
    old, first, second = _wide(c, a, b)
    return (old + scale * (first @ second)).astype(c.dtype)


def ones(*shapes: tuple[int, ...], dtype: type = np.float32) -> tuple[np.ndarray, ...]:
    return tuple(np.ones(shape, dtype) for shape in shapes)


_PRODUCT_ERRORS = (
    ErrorCase(Sample(ones((2, 3), (4, 5))), "cannot multiply [1, 2, 3] by [1, 4, 5]"),
    ErrorCase(Sample(ones((2, 3), (3,))), "expected rank 2"),
    ErrorCase(Sample(ones((2, 3), (3, 2), dtype=np.int32)), "expected float, half or quarter"),
    ErrorCase(
        Sample((*ones((2, 3)), *ones((3, 2), dtype=np.float16))), "operands of float and half"
    ),
    ErrorCase(
        Sample(ones((2, 3), (3, 2)), {"available_memory_proportion": -1.0}), "expected 0 to 2"
    ),
    ErrorCase(Sample(ones((2, 3), (3, 2)), {"partials_type": "int"}), "expected float or half"),
    ErrorCase(Sample(ones((2, 3), (3, 2)), {"cycle_backoff_percent": -1}), "expected 0 or more"),
)


def _register_products() -> None:
    register(Op(
        name="poplin.mat_mul", function=mat_mul, about="The product of two matrices.",
        samples=_mat_mul_samples, reference=_plain, errors=_PRODUCT_ERRORS, **COMMON,
    ))  # fmt: skip
    register(Op(
        name="poplin.mat_mul_grouped", function=mat_mul_grouped,
        about="Products of pairs of matrices.", samples=_grouped_samples, reference=_plain,
        errors=(ErrorCase(Sample(ones((2, 2, 3), (3, 3, 2))), "equal groups"),), **COMMON,
    ))  # fmt: skip
    register(Op(
        name="poplin.mat_mul_with_output", function=_with_output,
        about="The product of two matrices into a given tensor.",
        samples=lambda element, random: (
            s for s in _mat_mul_samples(element, random) if not s.options
        ),
        reference=_plain, **COMMON,
    ))  # fmt: skip
    register(Op(
        name="poplin.mat_mul_acc", function=_accumulate,
        about="A scaled product of two matrices added to a third.",
        samples=_accumulate_samples, reference=_accumulated, is_in_place=True,
        errors=(ErrorCase(
            Sample(ones((3, 3), (2, 3), (3, 2)), {"scale": 1.0}), "a result of shape [1, 3, 3]"
        ),), **COMMON,
    ))  # fmt: skip


_register_products()

"""Matrix products: plain, grouped, accumulating; and operands laid out as a product wants them."""

from tremula.base.source import user_source
from tremula.base.types import FLOAT, Type, as_type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensor import Tensor
from tremula.poplibs.poplin.build import add_product, create_operand
from tremula.poplibs.poplin.conv_params import check_type, matrix_problem
from tremula.poplibs.poplin.plan import Plan
from tremula.poplibs.poplin.planner import PlanOptions, plan_product
from tremula.poplibs.registry import PoplibsError


def mat_mul(
    graph: Graph, a: Tensor, b: Tensor, sequence: Sequence, name: str = "", *,
    out_type: Type | str | None = None, partials_type: Type | str = FLOAT,
    available_memory_proportion: float = 0.6,
) -> Tensor:  # fmt: skip
    """[m, k] x [k, n]: a new tensor [m, n]."""
    _check_ranks("mat_mul", a, b, 2)
    out = mat_mul_grouped(
        graph, a.expand([0]), b.expand([0]), sequence, name or "matMul", out_type=out_type,
        partials_type=partials_type, available_memory_proportion=available_memory_proportion,
    )  # fmt: skip
    return out[0]


def mat_mul_grouped(
    graph: Graph, a: Tensor, b: Tensor, sequence: Sequence, name: str = "", *,
    out_type: Type | str | None = None, partials_type: Type | str = FLOAT,
    available_memory_proportion: float = 0.6,
) -> Tensor:  # fmt: skip
    """[g, m, k] x [g, k, n]: a new tensor [g, m, n]."""
    _check_operands("mat_mul_grouped", a, b)
    options = _options(partials_type, available_memory_proportion)
    plan = _plan(graph, a.type, a.shape, b.shape, out_type, options)
    out = add_product(graph, plan, a.expand([1]), b.expand([1]), sequence, name or "matMulGrouped")
    return out.squeeze([1])


def _plan(
    graph: Graph, element: Type, a_shape: tuple[int, ...], b_shape: tuple[int, ...],
    out_type: Type | str | None, options: PlanOptions,
) -> Plan:  # fmt: skip
    (n_groups, n_rows, n_inner), n_cols = a_shape, b_shape[2]
    result = element if out_type is None else as_type(out_type)
    check_type(result, "a matrix product")
    problem = matrix_problem(n_groups, n_rows, n_inner, n_cols, element, result)
    return plan_product(graph, problem, options)


def _options(partials_type: Type | str, available_memory_proportion: float) -> PlanOptions:
    return PlanOptions(as_type(partials_type), available_memory_proportion)


def _check_ranks(what: str, a: Tensor, b: Tensor, rank: int) -> None:
    if a.rank != rank or b.rank != rank:
        raise PoplibsError(
            f"{what} got operands of shapes {list(a.shape)} and {list(b.shape)}, expected rank "
            f"{rank}.",
            source=user_source(),
            mend="use mat_mul for [m, k] x [k, n], mat_mul_grouped for [g, m, k] x [g, k, n]",
        )


def _check_operands(what: str, a: Tensor, b: Tensor) -> None:
    _check_ranks(what, a, b, 3)
    check_type(a.type, what)
    if a.type != b.type:
        raise PoplibsError(
            f"{what} got operands of {a.type} and {b.type}, expected one type.",
            source=user_source(),
            mend="cast one of them",
        )
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise PoplibsError(
            f"{what} cannot multiply {list(a.shape)} by {list(b.shape)}: expected "
            f"[{b.shape[0]}, m, {b.shape[1]}] on the left.",
            source=user_source(),
            mend="transpose an operand, or give equal inner dimensions and groups",
        )

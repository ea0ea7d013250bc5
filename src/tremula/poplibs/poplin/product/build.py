"""From columns to the graph: variables, rearrangement, compute sets and programs of a product."""

from functools import lru_cache

from tremula.base.types import QUARTER, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Execute, Sequence, WriteUndef
from tremula.poplar.tensors.runs import Pieces, Runs
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.poplin.product.blocks import (
    OperandBlocks,
    Spread,
    Stored,
    add_blocked,
    map_spread,
    recall,
    remember,
    view_of,
)
from tremula.poplibs.poplin.product.columns import (
    PartialsReduction,
    Reading,
    ReductionStage,
    columns_of,
)
from tremula.poplibs.poplin.product.plan import ProductPlan
from tremula.poplibs.poplin.product.transpose_operand import add_turning, contiguous_dim
from tremula.poplibs.poplin.product.vertices import conv_partial, conv_reduce
from tremula.poplibs.poputil.memo import N_PLANS
from tremula.poplibs.poputil.steps import run_vertices

cached_columns = lru_cache(N_PLANS)(columns_of)


def layout_of(plan: ProductPlan, operand: str) -> tuple[OperandBlocks, Spread, Type]:
    """The layout a plan asks of an operand: its blocks, their tiles, its type."""
    columns, part, problem = cached_columns(plan), plan.partition, plan.problem
    right, result = part.weights_blocks, part.out_blocks
    if problem.is_update:
        right, result = result, right
    return {
        "left": (part.acts_blocks, columns.left_map, problem.type),
        "right": (right, columns.right_map, problem.type),
        "result": (result, columns.result_map, problem.out_type),
    }[operand]


def create_operand(
    graph: Graph, plan: ProductPlan, operand: str, name: str, order: tuple[int, ...] | None = None,
    *, metadata: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """A new variable in the plan's layout; `order` is the order of dimensions users see."""
    blocks, spread, element = layout_of(plan, operand)
    stored = add_blocked(graph, element, blocks, name, metadata)
    map_spread(graph, stored.flat, spread)
    view = view_of(stored, order)
    remember(view, stored)
    return view


def arranged(
    graph: Graph, plan: ProductPlan, operand: str, tensor: Tensor, sequence: Sequence, name: str
) -> Stored:
    """The operand in the plan's layout: itself if it already is, else a copy."""
    blocks, spread, element = layout_of(plan, operand)
    known = recall(tensor)
    if known is not None and known.blocks == blocks:
        return known
    metadata = tensor.metadata if element is QUARTER else None
    stored = add_blocked(graph, element, blocks, f"{name}/{operand}Rearranged", metadata)
    map_spread(graph, stored.flat, spread)
    dim = contiguous_dim(tensor)
    if dim is None:
        sequence.add(Copy(tensor, view_of(stored)))
    else:
        columns = cached_columns(plan)
        parts = columns.left_parts if operand == "left" else columns.right_parts
        add_turning(graph, tensor, dim, stored, parts, sequence, f"{name}/{operand}")
    return stored


def add_product(  # noqa: PLR0917 - the one place where everything comes together
    graph: Graph, plan: ProductPlan, left: Tensor, right: Tensor, sequence: Sequence, name: str,
    order: tuple[int, ...] | None = None, result: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Append a product to the sequence; its result, with the dimensions of the plain form.

    `result` may be a tensor to fill; it is written directly if it has the plan's blocks.
    """
    first = arranged(graph, plan, "left", left, sequence, name)
    second = arranged(graph, plan, "right", right, sequence, name)
    blocks = layout_of(plan, "result")[0]
    known = recall(result) if result is not None else None
    if known is not None and known.blocks == blocks:
        stored, out = known, result
    else:
        out = create_operand(graph, plan, "result", f"{name}/out", order)
        stored = recall(out)
    assert stored is not None, "a created operand is known"
    assert out is not None, "a result has a view"
    _add_steps(graph, plan, first.flat, second.flat, stored.flat, sequence, name)
    if result is not None and out is not result:
        sequence.add(Copy(out, result))
        return result
    return out


def _add_steps(
    graph: Graph, plan: ProductPlan, left: Tensor, right: Tensor, result: Tensor,
    sequence: Sequence, name: str,
) -> None:  # fmt: skip
    columns, n_steps = cached_columns(plan), plan.splits.c_serial
    codelet = conv_partial(plan.method, plan.problem.type, plan.partials)
    if n_steps > 1:  # each step writes a part: what was there before is not kept
        sequence.add(WriteUndef(result))
    for step in range(n_steps):
        reduction = columns.reductions[step] if columns.reductions else None
        out = result
        if reduction is not None:
            out = _mapped(graph, plan.partials, reduction.partials_map, f"{name}/partials")
        rows = slice(step * plan.splits.n_tiles, (step + 1) * plan.splits.n_tiles)
        fields = {field: values[rows] for field, values in columns.state.items()}
        fields |= {
            "left": _read(left, columns.left, rows),
            "right": _read(right, columns.right, rows),
            "out": Slices(out, columns.out_begin[rows], columns.out_end[rows]),
        }
        run_vertices(graph, codelet, fields, columns.tile[rows], sequence, f"{name}/Convolve")
        if reduction is not None:
            _add_reduction(graph, plan, reduction, out, result, sequence, name)


def _mapped(graph: Graph, element: Type, spread: Spread, name: str) -> Tensor:
    """A new variable, as large and where the columns say."""
    variable = graph.add_variable(element, [int(spread.end.max())], name)
    map_spread(graph, variable, spread)
    return variable


def _read(flat: Tensor, reading: Reading, rows: slice) -> Slices:
    if reading.runs is None:
        return Slices(flat, reading.begin[rows], reading.end[rows])
    runs = reading.runs
    moved = Pieces(Runs(runs.start + flat.offset, runs.count, runs.stride))
    n_elems = int(moved.start[-1])
    gathered = Tensor(flat.variables, flat.type, 0, (n_elems,), (1,), moved)
    return Slices(gathered, reading.begin[rows], reading.end[rows])


def _add_reduction(
    graph: Graph, plan: ProductPlan, reduction: PartialsReduction, parts: Tensor, result: Tensor,
    sequence: Sequence, name: str,
) -> None:  # fmt: skip
    for number, stage in enumerate(reduction.stages):
        is_last = number == len(reduction.stages) - 1
        out = result
        if not is_last:
            spread = reduction.stage_maps[number]
            out = _mapped(graph, plan.partials, spread, f"{name}/partials")
        compute_set = graph.add_compute_set(f"{name}/Reduce")
        _add_stage(graph, plan, stage, parts, out, compute_set)
        sequence.add(Execute(compute_set))
        parts = out


def _add_stage(
    graph: Graph,
    plan: ProductPlan,
    stage: ReductionStage,
    parts: Tensor,
    out: Tensor,
    compute_set: object,
) -> None:
    codelet = conv_reduce(plan.partials, out.type)
    fields = {
        "parts": Slices(parts, stage.part_begin, stage.part_end, stage.start),
        "out": Slices(out, stage.out_begin, stage.out_end),
    }
    graph.add_vertices(compute_set, codelet, fields, tiles=stage.tile)  # type: ignore[arg-type]

"""Rows gathered from a table and added into one, as graph networks do: multi-slice and update."""

from tremula.base.types import FLOAT
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.popops.elementwise.fill import zero
from tremula.poplibs.popops.slicing.embedding_plan import SlicePlan
from tremula.poplibs.popops.slicing.embedding_plan import plan as plan_lookups
from tremula.poplibs.popops.slicing.layout import (
    create_indices_tensor,
    create_slice_tensor,
    create_sliceable_tensor,
)
from tremula.poplibs.popops.slicing.multi_slice import multi_slice
from tremula.poplibs.popops.slicing.multi_update import multi_update_add
from tremula.validate.rows import MeasuredRow
from tremula.validate.workloads.loop import proportion_of, time_in_loop
from tremula.validate.workloads.table import ModelledValue, workload

GATHER, SCATTER = "gather", "scatter-add"


@workload("index_select over rows", GATHER)
def gather(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """num_outputs rows of a table of num_inputs."""
    n_rows, n_features, n = (row.number(k) for k in ("num_inputs", "num_features", "num_outputs"))

    def body(graph: Graph, once: Sequence) -> Tensor:
        options = {
            "used_for_update": False, "available_memory_proportion": proportion_of(row),
        }  # fmt: skip
        plan = plan_lookups(graph, FLOAT, n_rows, n_features, n, options)
        table = create_sliceable_tensor(graph, FLOAT, [n_rows, n_features], plan=plan)
        indices = create_indices_tensor(graph, n)
        return multi_slice(graph, table, indices, once, plan=plan)

    return time_in_loop(row, chip_name, body)


@workload("torch_scatter sum", SCATTER)
def scatter_add(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """num_inputs rows added into a table of num_outputs that starts as zeros."""
    n, n_features, n_rows = (row.number(k) for k in ("num_inputs", "num_features", "num_outputs"))

    def body(graph: Graph, once: Sequence) -> Tensor:
        options = {
            "used_for_slice": False, "available_memory_proportion": proportion_of(row),
        }  # fmt: skip
        plan = plan_lookups(graph, FLOAT, n_rows, n_features, n, options)
        shape = [n_rows, n_features]
        table = create_sliceable_tensor(graph, FLOAT, shape, plan=plan)
        updates = create_slice_tensor(graph, FLOAT, shape, [0], [1], n, plan=plan)
        indices = create_indices_tensor(graph, n)
        sum_rows(graph, table, updates, indices, once, plan)
        return table

    return time_in_loop(row, chip_name, body)


def sum_rows(
    graph: Graph,
    table: Tensor,
    updates: Tensor,
    indices: Tensor,
    once: Sequence,
    plan: SlicePlan,
) -> None:
    """As PopTorch lowered `zeros.scatter_add_` when the rows were measured, around SDK 3.0.

    PopART's scatter-reduce fills its table with zeros and adds the rows; the tensor that PyTorch
    adds to, a constant of zeros spread linearly, is added to the result in place.
    """
    zero(graph, table, once, "scatterreduceFill")
    multi_update_add(graph, table, updates, indices, once, scale=1.0, plan=plan)
    initial = graph.add_constant(table.type, table.shape, 0, "initial", mapping="linear")
    popops.add_in_place(graph, table, initial, once, "addInitial")

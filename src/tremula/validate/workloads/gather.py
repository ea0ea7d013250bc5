"""Rows gathered from a table and added into one, as graph networks do: multi-slice and update."""

from tremula.base.types import FLOAT
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Repeat, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops.elementwise.fill import zero
from tremula.poplibs.popops.slicing.embedding_plan import plan as plan_lookups
from tremula.poplibs.popops.slicing.layout import (
    create_indices_tensor,
    create_slice_tensor,
    create_sliceable_tensor,
)
from tremula.poplibs.popops.slicing.multi_slice import multi_slice
from tremula.poplibs.popops.slicing.multi_update import multi_update_add
from tremula.validate.rows import Row
from tremula.validate.timing import Timing, time_program
from tremula.validate.workloads.table import Modelled, workload

GATHER, SCATTER = "gather", "scatter-add"
N_REPEATS = 128  # on the device, as measured: the loop's own cost is in each
DEFAULT_PROPORTION = 0.6  # of memory, if a row says "default"


def proportion_of(row: Row) -> float:
    """The share of a tile's memory a plan may use for temporaries."""
    given = row.text("amp", "default")
    return DEFAULT_PROPORTION if given == "default" else float(given)


@workload("index_select over rows", GATHER)
def gather(row: Row, chip_name: str) -> Modelled:
    """num_outputs rows of a table of num_inputs."""
    n_rows, n_features, n = (row.number(k) for k in ("num_inputs", "num_features", "num_outputs"))

    def build(graph: Graph, sequence: Sequence) -> None:
        options = {
            "used_for_update": False, "available_memory_proportion": proportion_of(row),
        }  # fmt: skip
        plan = plan_lookups(graph, FLOAT, n_rows, n_features, n, options)
        table = create_sliceable_tensor(graph, FLOAT, [n_rows, n_features], plan=plan)
        indices = create_indices_tensor(graph, n)
        once = Sequence()
        carry(graph, multi_slice(graph, table, indices, once, plan=plan), once)
        sequence.add(Repeat(N_REPEATS, once))

    return _once(time_program(chip_name, 1, build))


@workload("torch_scatter sum", SCATTER)
def scatter_add(row: Row, chip_name: str) -> Modelled:
    """num_outputs rows added into a table of num_inputs that starts as zeros."""
    n_rows, n_features, n = (row.number(k) for k in ("num_inputs", "num_features", "num_outputs"))

    def build(graph: Graph, sequence: Sequence) -> None:
        options = {
            "used_for_slice": False, "available_memory_proportion": proportion_of(row),
        }  # fmt: skip
        plan = plan_lookups(graph, FLOAT, n_rows, n_features, n, options)
        shape = [n_rows, n_features]
        table = create_sliceable_tensor(graph, FLOAT, shape, plan=plan)
        updates = create_slice_tensor(graph, FLOAT, shape, [0], [1], n, plan=plan)
        indices = create_indices_tensor(graph, n)
        once = Sequence()
        zero(graph, table, once)
        multi_update_add(graph, table, updates, indices, once, scale=1.0, plan=plan)
        carry(graph, table, once)
        sequence.add(Repeat(N_REPEATS, once))

    return _once(time_program(chip_name, 1, build))


def carry(graph: Graph, result: Tensor, sequence: Sequence) -> None:
    """What the measuring loop does with each result: to its own tensor, and to the loop's output.

    Both are spread linearly; the first copy rearranges, the second stays on its tiles.
    """
    carried = graph.add_variable(result.type, result.shape, "carried", mapping="linear")
    kept = graph.add_variable(result.type, result.shape, "kept", mapping="linear")
    sequence.add(Copy(result, carried))
    sequence.add(Copy(carried, kept))


def _once(timing: Timing) -> Modelled:
    return Modelled(timing.cycles / N_REPEATS, timing.clock_hz)

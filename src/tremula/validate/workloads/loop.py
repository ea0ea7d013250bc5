"""The loop on the device in which frameworks measure one operation, as PopART builds it.

A turn copies what the loop carries from its last result to the body's input, runs the body, copies
the result to the loop's own tensor of the same layout, and counts. After the last turn the sum of
the result goes to the host. The count of cycles begins and ends around all of it, so a turn's time
has a share of the call's.
"""

from collections.abc import Callable

from tremula.base.provenance import fitted
from tremula.base.types import UNSIGNED_INT
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Repeat, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.validate.rows import MeasuredRow
from tremula.validate.timing import time_program
from tremula.validate.workloads.table import ModelledValue

N_REPEATS = 128
DEFAULT_PROPORTION = 0.6  # of memory, if a row says "default"

# The rows with the default proportion were measured in another session than those that state one:
# whatever the program, its 128 turns took 22 microseconds longer (40 700 cycles, most within 150).
DEFAULT_SESSION_S = fitted(
    "DEFAULT_SESSION_S", 22e-6, "s of a call in the session without a stated memory proportion",
    "the same programs with proportion 0.1 took 318 cycles less in each of 128 turns",
    ("*-default-*",),
)  # fmt: skip

Body = Callable[[Graph, Sequence], Tensor]


def proportion_of(row: MeasuredRow) -> float:
    """The share of a tile's memory a plan may use for temporaries."""
    text = row.text("amp", "default")
    return DEFAULT_PROPORTION if text == "default" else float(text)


def time_in_loop(row: MeasuredRow, chip_name: str, body: Body) -> ModelledValue:
    """One turn of a loop whose body appends to a sequence and returns the result."""

    def build(graph: Graph, sequence: Sequence) -> None:
        once = Sequence()
        counter = graph.add_variable(UNSIGNED_INT, [], "iterator", mapping=0)
        result = body(graph, once)
        saved = graph.clone(result, "kept")
        copied = graph.add_variable(result.type, result.shape, "given", mapping="linear")
        once.add(Copy(result, saved))
        popops.add_in_place(graph, counter, 1, once, "iterator")
        once.add(Copy(saved, copied))
        sequence.add(Repeat(N_REPEATS, once))
        total = popops.reduce(graph, saved, list(range(saved.rank)), "ADD", sequence, "sum")
        sequence.add(Copy(total, graph.add_device_to_host_fifo("out", total.type, 1)))

    timing = time_program(chip_name, 1, build)
    further_s = DEFAULT_SESSION_S if row.text("amp", "default") == "default" else 0.0
    cycles = timing.cycles + further_s * timing.clock_hz
    return ModelledValue(cycles / N_REPEATS, timing.clock_hz)

"""The number of workers is the chip's: element-wise work, reductions and slices follow it."""

import numpy as np
import pytest

import tremula as tr
from tests.poplibs.run_op import laid_out
from tremula import FLOAT, HALF, UNSIGNED_INT
from tremula.poplibs import popops
from tremula.poplibs.popops.elementwise.costs import LoopCost, flat_multi_cycles
from tremula.vision.analysis.whatif import parse_sweep, whatif_script

pytestmark = pytest.mark.slow

SCRIPT = """
import tremula as tr
from tremula.poplibs import popops

graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=2).create_device())
sequence = tr.Sequence()
x = graph.add_variable(tr.FLOAT, [1000], "x", mapping=1)
popops.add_in_place(graph, x, 1.0, sequence)
tr.Engine(graph, sequence).load().run()
"""


def element_wise(graph, x, sequence):
    """Vectors, scalars, both broadcasts, a cast."""
    row, column = x[0], x.slice(0, 1, 1)
    parts = [
        popops.add(graph, x, x, sequence), popops.mul(graph, x, 2.0, sequence),
        popops.sub(graph, x, row, sequence), popops.sub(graph, x, column, sequence),
    ]  # fmt: skip
    return [*parts, popops.cast(graph, x, HALF, sequence)]


def reductions(graph, x, sequence):
    rows = popops.reduce(graph, x, [0], "ADD", sequence)
    return [
        rows, popops.reduce(graph, x, [1], "MAX", sequence),
        popops.cumulative_sum(graph, x, 1, sequence),
    ]  # fmt: skip


def slices(graph, x, sequence):
    rows = graph.add_constant(UNSIGNED_INT, [9], np.arange(0, 27, 3))
    one = graph.add_constant(UNSIGNED_INT, [1], [3])
    for tensor in (rows, one):
        graph.set_tile_mapping(tensor, 0)
    looked_up = popops.multi_slice(graph, x, rows, sequence)
    return [looked_up, popops.dynamic_slice(graph, x, one, sequence, dims=[0], sizes=[5])]


def run(build, n_workers):
    """The results of operations on such a chip, and the cycles they take."""
    chip = tr.chip("bow").replace(name="x", n_workers=n_workers)
    graph, sequence = tr.Graph(tr.IPUModel(chip, tiles_per_ipu=4).create_device()), tr.Sequence()
    x = laid_out(graph, FLOAT, (37, 52), np.random.default_rng(1))
    outs = build(graph, x, sequence)
    graph.create_host_write("x", x)
    for number, out in enumerate(outs):
        graph.create_host_read(f"out{number}", out)
    engine = tr.Engine(graph, sequence, {"debug.strict": "true"}).load()
    # Whole numbers: sums are exact in any order.
    engine.write_tensor("x", np.arange(37 * 52).reshape(37, 52).astype(np.float32))
    engine.run()
    values = [np.asarray(engine.read_tensor(f"out{n}")) for n in range(len(outs))]
    return values, engine.report().total_cycles


@pytest.mark.parametrize("build", [element_wise, reductions, slices])
def test_more_workers_compute_the_same(build):
    """Results are equal on chips of 3, 6 and 12 workers; cycles are those of their numbers."""
    few, six, many = (run(build, n) for n in (3, 6, 12))
    for other in (few, many):
        for got, expected in zip(other[0], six[0], strict=True):
            np.testing.assert_array_equal(got, expected)
    assert len({few[1], six[1], many[1]}) == 3


def test_cycles_of_a_vertex():
    """Workers issue in turn: twelve need as many slots for the elements, and start six more."""
    cost = LoopCost(11, 29, 3, 2)
    chips = [tr.chip("bow").replace(name="x", n_workers=n) for n in (6, 12)]
    six, twelve = (int(flat_multi_cycles(np.array([2400]), cost, chip)[0]) for chip in chips)
    assert twelve - six == 6 * 29


def test_what_if_of_workers_changes_element_wise_work(tmp_path):
    """A sweep of the workers costs an element-wise operation with each number of them."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    points = whatif_script(script, [], None, parse_sweep(["workers=3,6,12"]))
    assert len({p.compute_cycles for p in points if "n_workers" in p.changes}) == 3

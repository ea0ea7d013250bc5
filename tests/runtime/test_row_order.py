"""Rows that read the same large operand run next to each other, with the same results."""

import numpy as np

import tremula as tr
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.runtime.row_order import LEAST_SHARED_BYTES, in_order_of_memory

N_ELEMS = LEAST_SHARED_BYTES // 4 + 64
N_BLOCKS, N_ROWS = 3, 12


class PickOne(Vertex):
    """One element of a large operand, plus a state of the vertex."""

    block: Input[Vector[tr.FLOAT]]
    out: Output[Vector[tr.FLOAT]]
    at: tr.UNSIGNED_INT

    def compute(self):
        self.out[0] = self.block[self.at] + tr.FLOAT(self.at)


def picking_engine() -> tr.Engine:
    """Tiles 0, 1, 2, … read blocks a, b, c, a, b, c, …"""
    graph, sequence = tr.Graph(tr.IPUModel("bow").create_device()), tr.Sequence()
    table = graph.add_variable(tr.FLOAT, [N_BLOCKS, N_ELEMS], "table", mapping="linear")
    out = graph.add_variable(tr.FLOAT, [N_ROWS], "out", mapping="linear")
    compute_set = graph.add_compute_set("pick")
    for i in range(N_ROWS):
        vertex = graph.add_vertex(compute_set, PickOne, tile=i)
        graph.connect(vertex["block"], table[i % N_BLOCKS])
        graph.connect(vertex["out"], out[i : i + 1])
        graph.set_initial_value(vertex["at"], i)
    sequence.add(tr.Execute(compute_set))
    graph.create_host_write("table", table)
    graph.create_host_read("out", out)
    return tr.Engine(graph, sequence).load()


def test_rows_of_one_operand_follow_each_other():
    """A table whose rows share large blocks is run block by block; every column moves along."""
    engine = picking_engine()
    values = np.arange(N_BLOCKS * N_ELEMS, dtype=np.float32).reshape(N_BLOCKS, N_ELEMS)
    engine.write_tensor("table", values)
    engine.run()
    expected = [values[i % N_BLOCKS, i] + i for i in range(N_ROWS)]
    np.testing.assert_array_equal(engine.read_tensor("out"), expected)
    executable = engine.executable
    [table] = executable.compute_sets[0].tables
    ordered = in_order_of_memory(table, executable.codelets[table.codelet].spec)
    assert (np.diff(table.columns[0]) < 0).any(), "by tile, blocks alternate"
    assert (np.diff(ordered.columns[0]) >= 0).all()
    assert sorted(ordered.tile.tolist()) == sorted(table.tile.tolist())

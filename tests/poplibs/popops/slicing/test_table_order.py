"""Lookups in a table that another operation wrote, row by row: it is rearranged first."""

import numpy as np

import tremula as tr
from tremula.poplibs.popops.slicing.embedding_plan import plan
from tremula.poplibs.popops.slicing.layout import create_indices_tensor, create_sliceable_tensor
from tremula.poplibs.popops.slicing.multi_slice import multi_slice

N_ENTRIES, ROW_SIZE, N_LOOKUPS = 2000, 16, 3000


def looked_up(is_planned):
    """(rows looked up, those expected, the most pieces that a tile receives in an exchange)."""
    graph, sequence = tr.Graph(tr.IPUModel("ipu2", tiles_per_ipu=64).create_device()), tr.Sequence()
    lookups = plan(graph, tr.FLOAT, N_ENTRIES, ROW_SIZE, N_LOOKUPS, {"used_for_update": False})
    assert lookups.unsliced_dim_split > 1 < lookups.lookup_split
    shape = [N_ENTRIES, ROW_SIZE]
    if is_planned:
        table = create_sliceable_tensor(graph, tr.FLOAT, shape, plan=lookups)
    else:
        table = graph.add_variable(tr.FLOAT, shape, "table", mapping="linear")
    indices = create_indices_tensor(graph, N_LOOKUPS, name="indices")
    out = multi_slice(graph, table, indices, sequence, plan=lookups)
    for name, tensor in (("table", table), ("indices", indices)):
        graph.create_host_write(name, tensor)
    graph.create_host_read("out", out)
    engine = tr.Engine(graph, sequence).load()
    random = np.random.default_rng(0)
    values = random.random(shape, np.float32)
    at = random.integers(0, N_ENTRIES, N_LOOKUPS).astype(np.uint32)
    engine.write_tensor("table", values)
    engine.write_tensor("indices", at[:, None])
    engine.run()
    phases = [moved.before for moved in engine.executable.analysis.exchanges.distinct]
    n_pieces = max(int(phase.n_in_fragments.max()) for phase in phases if phase is not None)
    return engine.read_tensor("out").reshape(N_LOOKUPS, -1), values[at], n_pieces


def test_a_table_in_rows_is_rearranged():
    """The rows come out, and no exchange has a piece for each row of the table."""
    for is_planned in (True, False):
        result, expected, n_pieces = looked_up(is_planned)
        np.testing.assert_array_equal(result, expected)
        assert n_pieces < N_ENTRIES / 4

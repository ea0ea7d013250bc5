"""Traffic from tile to tile agrees with what the exchange pass counts per tile."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import tremula as tr
from tests.vision.programs import RowSum
from tremula import FLOAT
from tremula.base.errors import FileLoadError, MissingProfileData
from tremula.compiler.executable.executable import Executable
from tremula.compiler.report.traffic import TrafficOfSteps, joined
from tremula.poplibs import poplin, popops

N_TILES = 6


def compiled(random, n_ipus=1):
    """A program of random layouts: vertices with scattered fields, copies, a product, a sum."""
    graph = tr.Graph(tr.IPUModel("bow", n_ipus=n_ipus, tiles_per_ipu=N_TILES).create_device())
    n_tiles, (n_rows, n_columns) = graph.target.n_tiles, random.integers(3, 9, 2).tolist()

    def scattered(shape, name):
        tensor = graph.add_variable(FLOAT, shape, name)
        flat = tensor.flatten()
        cuts = np.unique(random.integers(0, flat.shape[0] + 1, 9))
        cuts = [0, *cuts.tolist(), flat.shape[0]]
        for low, high in pairwise(cuts):
            if high > low:
                graph.set_tile_mapping(flat[low:high], int(random.integers(n_tiles)))
        return tensor

    matrix, totals = scattered([n_rows, n_columns], "matrix"), scattered([n_rows], "totals")
    other = scattered([n_columns, n_rows], "other")
    graph.set_initial_value(matrix, 1.0)
    graph.set_initial_value(other, 1.0)
    sums = graph.add_compute_set("sums")
    tiles = random.integers(0, n_tiles, n_rows)
    for row in range(n_rows):  # columns of the other one are scattered
        source = other[:, row] if row % 2 else matrix[row]
        graph.add_vertex(sums, RowSum, {"row": source, "total": totals[row]}, tile=int(tiles[row]))
    program = tr.Sequence([tr.Execute(sums), tr.Copy(matrix.transpose(), other)])
    product = poplin.mat_mul(graph, matrix, other, program, "product")
    popops.add_in_place(graph, product, product.transpose(), program, "add")
    return tr.compile_graph(graph, program)


@pytest.mark.parametrize("n_ipus", [1, 2])
def test_every_tile_receives_what_the_exchange_says(n_ipus):
    """Per receiver, bytes of all senders are the exchange's; senders send no less than theirs."""
    random = np.random.default_rng(n_ipus)
    n_checked = 0
    for _ in range(12):
        executable = compiled(random, n_ipus)
        traffic, n_tiles = TrafficOfSteps(executable), executable.target.n_tiles
        for step in range(len(executable.steps)):
            moved, rows = executable.analysis.exchanges.of_step(step), traffic.of_step(step)
            received, sent = np.zeros(n_tiles, np.int64), np.zeros(n_tiles, np.int64)
            chips = np.zeros((n_ipus, n_ipus), np.int64)
            for phase in (moved.before, moved.after):
                if phase is not None:
                    received += phase.received
                    sent += phase.sent
                    chips += phase.chip_bytes
            arrived = np.bincount(rows.destination, rows.n_bytes, n_tiles)
            left = np.bincount(rows.source, rows.n_bytes, n_tiles)
            assert arrived.tolist() == received.tolist(), executable.steps[step].name
            assert ((left >= sent) & ((left > 0) == (sent > 0))).all()
            assert (rows.source != rows.destination).all()
            crosses = (rows.source // N_TILES != rows.destination // N_TILES).any()
            assert crosses == bool(chips.any())
            n_checked += len(rows.n_bytes)
    assert n_checked > 300


def test_files_hold_the_map_and_are_checked(tmp_path):
    """A saved executable gives the same traffic; a damaged map is rejected; none is said to be."""
    executable = compiled(np.random.default_rng(0))
    path = str(tmp_path / "program")
    executable.save(path)
    loaded = TrafficOfSteps(Executable.load(path))
    for step in range(len(executable.steps)):
        pairs = zip(loaded.of_step(step), TrafficOfSteps(executable).of_step(step), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs)
    begin, end, tile = executable.tile_map
    for wrong in ((begin, end, tile + 99), (begin, end + 10**12, tile), (end, begin, tile)):
        replace(executable, tile_map=executable.tile_map._replace(
            begin=wrong[0], end=wrong[1], tile=wrong[2])).save(path)  # fmt: skip
        with pytest.raises(FileLoadError):
            Executable.load(path)
    with pytest.raises(MissingProfileData, match="compiled before"):
        TrafficOfSteps(replace(executable, tile_map=None))


def test_sums_of_traffic():
    """Joining adds bytes of equal pairs; nothing stays nothing."""
    executable = compiled(np.random.default_rng(3))
    traffic = TrafficOfSteps(executable)
    all_steps = [traffic.of_step(step) for step in range(len(executable.steps))]
    total = joined(all_steps)
    assert total.n_bytes.sum() == sum(part.n_bytes.sum() for part in all_steps)
    key = total.source * executable.target.n_tiles + total.destination
    assert (np.diff(key) > 0).all()
    assert len(joined([]).n_bytes) == 0

"""Code of steps before they are compiled: what the memory pass counts for receivers."""

import numpy as np
import pytest

from tremula.base.types import FLOAT
from tremula.compiler.compile import compile_graph
from tremula.compiler.lower.copies import plan_copy
from tremula.compiler.passes.code_size import bytes_of_copy, bytes_of_tables
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.target import IPUModel
from tremula.poplibs import popops

N_TILES = 8


def received_code(executable) -> int:
    """Bytes of exchange code but for what tiles send."""
    chip, total = executable.target.chip, 0
    for moved in executable.analysis.exchanges.distinct:
        for phase in (moved.before, moved.after):
            if phase is not None:
                receives = int(np.count_nonzero(phase.n_in_fragments))
                total += receives * chip.n_bytes_exchange_code_per_phase
                n_controls = int(phase.n_in_controls.sum())
                total += n_controls * chip.n_bytes_exchange_code_per_receive_control
    return total


def mapped_graph():
    """A graph, and tensors of it that are spread by rows and by columns."""
    graph = Graph(IPUModel("bow", tiles_per_ipu=N_TILES).create_target())
    rows = graph.add_variable(FLOAT, [16, 16], "rows")
    columns = graph.add_variable(FLOAT, [16, 16], "columns")
    for tile in range(N_TILES):
        part = slice(2 * tile, 2 * tile + 2)
        graph.set_tile_mapping(rows[part], tile)
        graph.set_tile_mapping(columns[:, part], tile)
    return graph, rows, columns


class Mapped:
    """What the sizes of code need of a graph."""

    def __init__(self, graph):
        self.target, self.variables = graph.target, graph.state.variables
        self.tile_map = graph.state.tile_map.resolve()


def test_copy_between_tiles():
    """Each row's piece on another tile needs controls of the tile it goes to."""
    graph, rows, columns = mapped_graph()
    size = bytes_of_copy(plan_copy(rows, columns), Mapped(graph))
    executable = compile_graph(graph, Sequence([Copy(rows, columns)]))
    assert size * N_TILES == received_code(executable) > 0


def test_vertices_that_read_other_tiles():
    """Vertices with what is beside them, and the exchange that brings their operands."""
    graph, rows, columns = mapped_graph()
    sequence = Sequence()
    popops.add(graph, rows, columns, sequence)
    (made,) = graph.state.compute_sets
    size = bytes_of_tables(made.frozen_tables(), Mapped(graph))
    executable = compile_graph(graph, sequence)
    memory = executable.analysis.memory
    names = ("Vertex Instances", "Vertex Field Data", "VectorList Descriptors", "Control Table")
    vertices = sum(int(memory.category(name).sum()) for name in names)
    assert size * N_TILES == pytest.approx(vertices + received_code(executable))

"""Descriptors of copies within a tile: equal pieces at regular distances need one."""

import numpy as np
import pytest

from tremula.base.types import FLOAT
from tremula.compiler.passes.on_tile_copies import (
    DESCRIPTOR_WORDS,
    STRIDED_WORDS,
    descriptor_words,
)
from tremula.poplar import programs as p


def words(pieces, n_tiles=1):
    """Of pieces (tile, source, goal, size)."""
    return descriptor_words(*np.array(pieces, np.int64).reshape(-1, 4).T, n_tiles).tolist()


def test_pieces_one_by_one():
    """Up to two pieces, and irregular ones, are described by themselves."""
    assert words([]) == [0]
    assert words([(0, 0, 100, 8)]) == [DESCRIPTOR_WORDS]
    assert words([(0, 0, 100, 8), (0, 16, 200, 8)]) == [2 * DESCRIPTOR_WORDS]
    irregular = [(0, 0, 100, 8), (0, 16, 150, 8), (0, 50, 350, 8), (0, 60, 351, 8)]
    assert words(irregular) == [4 * DESCRIPTOR_WORDS]


def test_regular_pieces_are_one_copy():
    """Rows of a matrix; the same source for all rows; two tiles have one each."""
    rows = [(0, 32 * n, 1000 + 16 * n, 16) for n in range(20)]
    assert words(rows) == [STRIDED_WORDS]
    bias = [(0, 64, 1000 + 16 * n, 16) for n in range(20)]
    assert words(bias) == [STRIDED_WORDS]
    both = [*rows, *[(1, *piece[1:]) for piece in bias]]
    assert words(both, 2) == [STRIDED_WORDS, STRIDED_WORDS]


def test_pieces_are_taken_by_source_or_by_goal():
    """Two sources in turn are two copies; a size that differs ends one."""
    turns = [(0, 8 * (n % 2), 1000 + 8 * n, 8) for n in range(12)]
    assert words(turns) == [2 * STRIDED_WORDS]
    cut = [(0, 32 * n, 1000 + 16 * n, 8 if n == 5 else 16) for n in range(11)]
    assert words(cut) == [2 * STRIDED_WORDS + DESCRIPTOR_WORDS]


@pytest.mark.parametrize("n_rows", [40, 80])
def test_a_repeated_row_needs_as_much_however_often(n_rows, small_graph, analysed):
    """A bias that is copied to every row of a result takes the descriptors of one row."""
    graph = small_graph()
    bias = graph.add_variable(FLOAT, [4], "bias", mapping=0)
    result = graph.add_variable(FLOAT, [n_rows, 4], "result", mapping=0)
    graph.create_host_write("bias", bias)
    graph.create_host_read("result", result)
    program = p.Copy(bias.expand([0]).broadcast(n_rows, 0), result)
    memory = analysed(graph, program).memory
    assert memory.category("Copy Descriptors")[0] <= 4 * (STRIDED_WORDS + DESCRIPTOR_WORDS)

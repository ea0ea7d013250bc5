"""Bytes beside the vertices of products are those of PopLibs' pointers and worklists."""

import numpy as np
import pytest

from tremula.base.types import HALF
from tremula.compiler.compile import compile_graph
from tremula.hardware import chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.target import IPUModel
from tremula.poplibs.poplin.product.conv_params import ConvParams
from tremula.poplibs.poplin.product.convolution import (
    acts_shape,
    calculate_weight_deltas,
    out_shape,
)
from tremula.poplibs.poplin.product.methods import Work
from tremula.poplibs.poplin.product.vertex_memory import field_data_bytes, instance_bytes

BOW = chip("Bow")
TRIPLE = 6  # three half-words


def n_bytes(method: str, work: Work) -> int:
    return int(np.broadcast_to(field_data_bytes(method, work, BOW, HALF, HALF), (1,))[0])


def test_one_tap_takes_an_entry_per_worker() -> None:
    """A vertex of one tap has one run of positions for each worker, whatever its rows."""
    # 32 channels in, 16 out: two passes of the unit, so two pointers to inputs, two to weights.
    work = Work(n_groups=1, n_positions=600, n_rows=20, n_in=32, n_out=16, n_taps=1)
    assert n_bytes("AMP", work) == 6 * TRIPLE + 2 * (2 + 2 + 1)


@pytest.mark.parametrize("n_rows", [6, 12])
def test_taps_take_a_list_per_worker_and_row(n_rows: int) -> None:
    """With several taps each worker has a list for each of them, with its rows as entries."""
    work = Work(n_groups=1, n_positions=10 * n_rows, n_rows=n_rows, n_in=16, n_out=16, n_taps=9)
    lists = 9 * 6 * (4 + TRIPLE * n_rows // 6)
    assert n_bytes("AMP", work) == lists + 2 * 3


def test_groups_share_worklists() -> None:
    """More groups of a convolution mean more pointers, and the lists of one."""
    work = Work(n_groups=1, n_positions=24, n_rows=6, n_in=4, n_out=4, n_taps=9)
    more = work._replace(n_groups=8)
    assert n_bytes("HMAC", more) - n_bytes("HMAC", work) == 7 * 3 * 2


def test_gradient_of_patches_needs_few_bytes_beside_its_vertices() -> None:
    """A kernel as large as its stride: 256 taps of one output each, for every image."""
    params = ConvParams(
        type=HALF, n_batch=4, n_in_chans=3, n_out_chans=32, field_shape=(64, 64),
        kernel_shape=(16, 16), stride=(16, 16),
    )  # fmt: skip
    graph, sequence = Graph(IPUModel("Bow", tiles_per_ipu=16).create_target()), Sequence()
    acts = graph.add_variable(HALF, acts_shape(params), "acts", mapping="linear")
    deltas = graph.add_variable(HALF, out_shape(params), "deltas", mapping="linear")
    calculate_weight_deltas(graph, deltas, acts, params, sequence)
    memory = compile_graph(graph, sequence).analysis.memory
    assert memory.category("Vertex Field Data").max() < 1000


def test_vertices_are_those_of_poplibs() -> None:
    """A vertex of one tap has four pointers and seven half-words, one of several taps more."""
    work = Work(n_groups=1, n_positions=24, n_rows=6, n_in=16, n_out=16, n_taps=1)
    assert int(instance_bytes("AMP", work)) == 24
    assert int(instance_bytes("AMP", work._replace(n_taps=9))) == 52

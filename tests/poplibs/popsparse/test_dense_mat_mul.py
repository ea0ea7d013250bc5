"""dense_mat_mul: a sparse matrix on either side, of a fixed or a changing pattern."""

import numpy as np
import pytest

import tremula as tr
from tremula.poplibs import popsparse
from tremula.poplibs.popsparse import CSRMatrix, SparsityError, dynamic, static

SPARSE = np.zeros((4, 6), np.float32)
SPARSE[[0, 0, 1, 2, 2, 2, 3], [1, 4, 0, 2, 3, 5, 4]] = [1, 2, 3, 4, 5, 6, 7]
RIGHT, LEFT = np.arange(12, dtype=np.float32).reshape(6, 2), np.arange(8, dtype=np.float32)
LEFT = LEFT.reshape(2, 4)


def new_graph() -> tr.Graph:
    return tr.Graph(tr.IPUModel("bow", tiles_per_ipu=8).create_device())


def products(graph: tr.Graph, lhs, rhs, written: dict, dense: tuple) -> list[np.ndarray]:
    """SPARSE·RIGHT and LEFT·SPARSE, by operands of one kind."""
    sequence = tr.Sequence()
    results = [
        popsparse.dense_mat_mul(graph, lhs, dense[0], sequence),
        popsparse.dense_mat_mul(graph, dense[1], rhs, sequence),
    ]
    for name, (tensor, _) in written.items():
        graph.create_host_write(name, tensor)
    for number, result in enumerate(results):
        graph.create_host_read(f"out{number}", result)
    engine = tr.Engine(graph, sequence).load()
    for name, (_, array) in written.items():
        engine.write_tensor(name, array)
    engine.run()
    return [engine.read_tensor(f"out{number}") for number in range(2)]


def dense_operands(graph: tr.Graph) -> tuple[tr.Tensor, tr.Tensor]:
    right, left = (graph.add_variable(tr.FLOAT, x.shape, mapping="linear") for x in (RIGHT, LEFT))
    graph.set_initial_value(right, RIGHT)
    graph.set_initial_value(left, LEFT)
    return right, left


def test_a_pattern_known_when_compiling():
    """Both orders give NumPy's results."""
    graph, pattern = new_graph(), CSRMatrix.from_dense(SPARSE)
    params = static.MatMulParams.create_for_sparse_dense(1, 4, 6, 2)
    turned = static.MatMulParams.create_for_dense_sparse(1, 2, 4, 6)
    lhs = static.create_sparse_dense_mat_mul_lhs(graph, tr.FLOAT, params, pattern)
    rhs = static.create_dense_sparse_mat_mul_rhs(graph, tr.FLOAT, turned, pattern)
    values = pattern.nz_values
    written = {"l": (lhs.in_row_order(), values), "r": (rhs.in_row_order(), values)}
    result = products(graph, lhs, rhs, written, dense_operands(graph))
    np.testing.assert_array_equal(result[0], SPARSE @ RIGHT)
    np.testing.assert_array_equal(result[1], LEFT @ SPARSE)


def test_a_pattern_given_at_run_time():
    """Both orders give NumPy's results, from one sparse operand."""
    graph = new_graph()
    params = dynamic.MatMulParams.create_with_nz_ratio(7 / 24, 1, 4, 6, 2)
    passes = {"do_grad_a_pass": True}
    sparse = dynamic.create_sparse_dense_mat_mul_lhs(graph, tr.FLOAT, params, **passes)
    partitioner = dynamic.Partitioner(params, tr.FLOAT, graph.target, **passes)
    data = partitioner.create_sparsity_data(CSRMatrix.from_dense(SPARSE))
    written = {
        "meta": (sparse.meta_info, data.meta_info),
        "values": (sparse.nz_values, data.nz_values),
    }
    result = products(graph, sparse, sparse, written, dense_operands(graph))
    np.testing.assert_array_equal(result[0], SPARSE @ RIGHT)
    np.testing.assert_array_equal(result[1], LEFT @ SPARSE)


def test_two_dense_operands_are_refused():
    """The error says whose product that is."""
    graph = new_graph()
    right, left = dense_operands(graph)
    with pytest.raises(SparsityError, match="got a dense one and a dense one"):
        popsparse.dense_mat_mul(graph, left, right, tr.Sequence())

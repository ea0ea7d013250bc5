"""Partitioners of both kinds, transposed operands, and options that do not exist."""

import numpy as np
import pytest

import tremula as tr
from tremula.base.errors import InvalidOption
from tremula.poplibs import poplin
from tremula.poplibs.popsparse import CSRMatrix, SparsityError, dynamic, static

RNG = np.random.default_rng(0)


def _target(n_tiles=8):
    return tr.IPUModel("bow", tiles_per_ipu=n_tiles).create_target()


def _graph(n_tiles=8):
    return tr.Graph(tr.IPUModel("bow", tiles_per_ipu=n_tiles).create_device())


def _matrix(side=4, n_rows=16, n_columns=24):
    present = np.kron(RNG.random((n_rows // side, n_columns // side)) < 0.5, np.ones((side, side)))
    values = present * RNG.standard_normal((n_rows, n_columns))
    return CSRMatrix.from_dense(values.astype(np.float32), (side, side))


@pytest.mark.parametrize("side", [1, 4])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_static_values_go_to_the_device_and_back(side, is_transposed):
    """Values in device order are those of the operand, and give the matrix back."""
    matrix = _matrix(side)
    make = static.MatMulParams.create_for_sparse_dense
    params = make(1, 16, 24, 8)
    if is_transposed:
        params = static.MatMulParams.create_for_dense_sparse(1, 8, 16, 24)
    partitioner = static.Partitioner(params, tr.FLOAT, _target())
    values = partitioner.create_sparsity_data(matrix)
    assert partitioner.to_csr(values) == matrix
    assert partitioner.to_coo(values) == matrix.to_coo()
    assert partitioner.to_csc(values) == matrix.to_csc()
    assert sorted(values) == sorted(matrix.nz_values)


def test_a_static_partitioner_has_one_pattern():
    """A second pattern, and values of a pattern that is not known yet, are refused."""
    params = static.MatMulParams.create_for_sparse_dense(1, 16, 24, 8)
    partitioner = static.Partitioner(params, tr.FLOAT, _target())
    with pytest.raises(SparsityError, match="knows no pattern"):
        partitioner.to_csr(np.zeros(3))
    first = _matrix()
    values = partitioner.create_sparsity_data(first)
    assert np.array_equal(partitioner.create_sparsity_data(first.to_csc()), values)
    with pytest.raises(SparsityError, match="has one pattern"):
        partitioner.create_sparsity_data(CSRMatrix.from_dense(np.eye(16, 24), (4, 4)))
    with pytest.raises(SparsityError, match="values for a pattern of"):
        partitioner.to_coo(values[:-1])


def test_dynamic_data_give_every_format():
    """What a Partitioner wrote is read back as CSR and CSC; data of another size is refused."""
    params = dynamic.FullyConnectedParams.create_with_nz_ratio(0.8, 8, 24, 16, block=4)
    partitioner = dynamic.Partitioner(params, tr.FLOAT, _target())
    matrix = _matrix()
    data = partitioner.create_sparsity_data(matrix)
    assert partitioner.to_csr(data.meta_info, data.nz_values) == matrix
    assert partitioner.to_csc(data.meta_info, data.nz_values) == matrix.to_csc()
    with pytest.raises(SparsityError, match="all buckets"):
        partitioner.to_coo(data.meta_info, data.nz_values[:-4])
    x, y, z = partitioner.plan_partitions
    plan = partitioner.plan
    assert (len(x), len(y), len(z)) == (plan.x, plan.y, plan.z)
    assert x[0] == y[0] == z[0] == 0
    assert x[-1] < 16
    assert y[-1] < 24
    assert z[-1] < 8
    assert partitioner.n_bucket_words == plan.n_meta


def _run(graph, sequence, written, out):
    for name, (tensor, _) in written.items():
        graph.create_host_write(name, tensor)
    graph.create_host_read("out", out)
    engine = tr.Engine(graph, sequence).load()
    for name, (_, values) in written.items():
        engine.write_tensor(name, values)
    engine.run()
    return engine.read_tensor("out")


@pytest.mark.parametrize("transpose_lhs", [False, True])
def test_dynamic_operands_are_transposed(transpose_lhs):
    """[n, k] with transpose_rhs is what [k, n] is without."""
    matrix, graph, sequence = _matrix(), _graph(), tr.Sequence()
    params = dynamic.MatMulParams.create_with_nz_ratio(0.8, 1, 16, 24, 8, block=4)
    lhs = dynamic.create_sparse_dense_mat_mul_lhs(graph, tr.FLOAT, params)
    data = dynamic.Partitioner(params, tr.FLOAT, graph.target).create_sparsity_data(matrix)
    n_rows = 16 if transpose_lhs else 24
    rhs = graph.add_variable(tr.FLOAT, [8, n_rows], "rhs", mapping="linear")
    out = dynamic.sparse_dense_mat_mul(
        graph, lhs, rhs, sequence, transpose_lhs=transpose_lhs, transpose_rhs=True
    )
    x = RNG.standard_normal((8, n_rows)).astype(np.float32)
    written = {
        "meta": (lhs.meta_info, data.meta_info),
        "values": (lhs.nz_values, data.nz_values),
        "x": (rhs, x),
    }
    dense = matrix.to_dense().T if transpose_lhs else matrix.to_dense()
    np.testing.assert_allclose(_run(graph, sequence, written, out), dense @ x.T, atol=1e-5)


def test_static_dense_operands_are_transposed():
    """Either side's dense operand may be transposed; the sparse one may not."""
    matrix, graph, sequence = _matrix(), _graph(), tr.Sequence()
    params = static.MatMulParams.create_for_sparse_dense(1, 16, 24, 8)
    lhs = static.create_sparse_dense_mat_mul_lhs(graph, tr.FLOAT, params, matrix)
    rhs = graph.add_variable(tr.FLOAT, [8, 24], "rhs", mapping="linear")
    out = static.sparse_dense_mat_mul(graph, lhs, rhs, sequence, transpose_rhs=True)
    x = RNG.standard_normal((8, 24)).astype(np.float32)
    written = {"values": (lhs.in_row_order(), matrix.nz_values), "x": (rhs, x)}
    result = _run(graph, sequence, written, out)
    np.testing.assert_allclose(result, matrix.to_dense() @ x.T, atol=1e-5)
    with pytest.raises(SparsityError, match="left operand of a static product cannot"):
        static.sparse_dense_mat_mul(graph, lhs, rhs, sequence, transpose_lhs=True)


def test_dense_by_static_sparse_is_transposed():
    """[k, n] with transpose_lhs is what [n, k] is without."""
    matrix, graph, sequence = _matrix(), _graph(), tr.Sequence()
    params = static.MatMulParams.create_for_dense_sparse(1, 8, 16, 24)
    rhs = static.create_dense_sparse_mat_mul_rhs(graph, tr.FLOAT, params, matrix)
    lhs = graph.add_variable(tr.FLOAT, [16, 8], "lhs", mapping="linear")
    out = static.dense_sparse_mat_mul(graph, lhs, rhs, sequence, transpose_lhs=True)
    x = RNG.standard_normal((16, 8)).astype(np.float32)
    written = {"values": (rhs.in_row_order(), matrix.nz_values), "x": (lhs, x)}
    result = _run(graph, sequence, written, out)
    np.testing.assert_allclose(result, x.T @ matrix.to_dense(), atol=1e-5)
    with pytest.raises(SparsityError, match="right operand of a static product cannot"):
        static.dense_sparse_mat_mul(graph, lhs, rhs, sequence, transpose_rhs=True)


def test_unknown_options_are_named():
    """A misspelt option is an error with the nearest name, here and in poplin."""
    graph, matrix = _graph(), _matrix()
    layer = dynamic.FullyConnectedParams.create_with_nz_ratio(0.5, 8, 24, 16)
    with pytest.raises(InvalidOption, match="do_grad_w_pass"):
        dynamic.Partitioner(layer, tr.FLOAT, graph.target, do_grad_w=True)
    params = static.MatMulParams.create_for_sparse_dense(1, 16, 24, 8)
    with pytest.raises(InvalidOption, match="num_bands"):
        static.create_sparse_dense_mat_mul_lhs(graph, tr.FLOAT, params, matrix, n_bands=2)
    a = graph.add_variable(tr.FLOAT, [4, 4], "a", mapping="linear")
    with pytest.raises(InvalidOption, match="partials_type"):
        poplin.mat_mul(graph, a, a, tr.Sequence(), partial_type=tr.HALF)


def test_shares_of_memory():
    """No memory at all still gives a plan, as PopLibs doubles what does not suffice."""
    layer = dynamic.FullyConnectedParams.create_with_nz_ratio(0.5, 8, 24, 16)
    none = dynamic.Partitioner(layer, tr.FLOAT, _target(), available_memory_proportion=0)
    some = dynamic.Partitioner(layer, tr.FLOAT, _target(), available_memory_proportion=0.6)
    assert none.plan.n_bytes <= some.plan.n_bytes
    with pytest.raises(InvalidOption, match="expected 0 or more"):
        dynamic.Partitioner(layer, tr.FLOAT, _target(), available_memory_proportion=-1)


def test_errors_of_matrices_say_where():
    """A wrong matrix names the line that made it."""
    with pytest.raises(SparsityError, match=r"test_partitioners\.py"):
        CSRMatrix(4, 4, np.ones(1), np.array([9]), np.array([0, 1, 1, 1, 1]))

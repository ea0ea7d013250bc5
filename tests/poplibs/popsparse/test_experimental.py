"""Block-sparse products and softmax by masks, against NumPy; what they refuse."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tremula as tr
from tremula.base.errors import InvalidOption
from tremula.poplibs.popsparse import SparsityError, experimental
from tremula.poplibs.popsparse.experimental import BSMatMulParams, SubBlockMask

F, H = tr.FLOAT, tr.HALF
NONE, UPPER, LOWER = SubBlockMask


def blocks_of(matrix, block, mask):
    """A dense [groups, rows, columns] as the blocks of a mask."""
    g, rows, columns = matrix.shape
    grid = matrix.reshape(g, rows // block[0], block[0], columns // block[1], block[1])
    grid = grid.transpose(0, 1, 3, 2, 4).reshape(-1, block[0] * block[1])
    return grid[np.asarray(mask, bool)]


def dense_of(blocks, shape, block, mask):
    """The blocks of a mask as a dense [groups, rows, columns]."""
    g, rows, columns = shape
    grid = np.zeros((len(mask), *block), np.float64)
    grid[np.asarray(mask, bool)] = np.asarray(blocks, np.float64).reshape(-1, *block)
    grid = grid.reshape(g, rows // block[0], columns // block[1], *block)
    return grid.transpose(0, 1, 3, 2, 4).reshape(shape)


def run(build, *operands, n_tiles=8):
    """Tensors of a graph from arrays, and what a function of them gives."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=n_tiles).create_device())
    sequence, tensors = tr.Sequence(), []
    for i, operand in enumerate(operands):
        type_ = H if operand.dtype == np.float16 else F
        tensors.append(graph.add_variable(type_, operand.shape, f"in{i}", mapping="linear"))
        if operand.size:
            graph.create_host_write(f"in{i}", tensors[-1])
    out = build(graph, sequence, *tensors)
    if not out.n_elems:
        return np.zeros(out.shape)
    graph.create_host_read("out", out)
    engine = tr.Engine(graph, sequence).load()
    for i, operand in enumerate(operands):
        if operand.size:
            engine.write_tensor(f"in{i}", operand)
    engine.run()
    return np.asarray(engine.read_tensor("out"), np.float64)


def made(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize(
    ("dims", "block", "n_groups", "types", "n_passes"),
    [
        ((8, 16, 24), (4, 8, 8), 1, (F, F, F), 1),
        ((8, 16, 12), (2, 8, 4), 2, (F, F, F), 1),
        ((12, 32, 16), (3, 16, 16), 1, (H, H, H), 2),
        ((4, 16, 32), (4, 16, 32), 1, (H, F, F), 1),
    ],
)
def test_dense_by_sparse(dims, block, n_groups, types, n_passes, is_turned):
    """Any block sizes, groups, passes; a right operand may be kept transposed."""
    rng = np.random.default_rng(0)
    m, k, n = dims
    dtype = np.float16 if types[0] is H else np.float32
    size, rhs_block = ((n, k), block[:0:-1]) if is_turned else ((k, n), block[1:])
    mask = rng.random(n_groups * (k // block[1]) * (n // block[2])) < 0.6
    params = BSMatMulParams.dense_sparse(
        dims, block, mask, *types, rhs_need_transpose=is_turned, n_groups=n_groups
    )
    lhs = made(rng, n_groups, m, k, dtype=dtype)
    rhs = blocks_of(made(rng, n_groups, *size, dtype=dtype), rhs_block, mask)
    given_lhs = lhs if n_groups > 1 else lhs[0]
    result = run(
        lambda g, s, a, b: experimental.bs_mat_mul(g, params, s, a, b, number_of_pass=n_passes),
        given_lhs, rhs,
    )  # fmt: skip
    matrix = dense_of(rhs, (n_groups, *size), rhs_block, mask)
    want = lhs.astype(np.float64) @ (matrix.transpose(0, 2, 1) if is_turned else matrix)
    np.testing.assert_allclose(
        result.reshape(want.shape), want, atol=2e-2 if dtype is np.float16 else 1e-4
    )


@pytest.mark.parametrize("triangle", list(SubBlockMask))
@pytest.mark.parametrize("n_groups", [1, 2])
def test_dense_by_dense_at_the_blocks_of_a_mask(triangle, n_groups):
    """Only these blocks are computed; beyond the diagonal they are zero where it was asked."""
    rng = np.random.default_rng(1)
    dims, block = (16, 8, 16), (4, 8, 8)
    mask = rng.random(n_groups * 4 * 2) < 0.7
    params = BSMatMulParams.dense_dense(
        dims, block, mask, F, F, F, sub_block_mask=triangle, n_groups=n_groups
    )
    lhs, rhs = made(rng, n_groups, 16, 8), made(rng, n_groups, 8, 16)
    operands = (lhs, rhs) if n_groups > 1 else (lhs[0], rhs[0])
    result = run(lambda g, s, a, b: experimental.bs_mat_mul(g, params, s, a, b), *operands)
    product = lhs @ rhs
    product = {NONE: product, UPPER: np.tril(product), LOWER: np.triu(product)}[triangle]
    np.testing.assert_allclose(result, blocks_of(product, (4, 8), mask), atol=1e-5)


def softmax_of(x, mask, triangle):
    """Rows of the elements that count; the others zero."""
    there = dense_of(np.ones(mask.sum() * 8), x.shape, (2, 4), mask) > 0
    there &= {NONE: there, UPPER: np.tril(there), LOWER: np.triu(there)}[triangle]
    powers = np.where(there, np.exp(x), 0.0)
    return powers / np.maximum(powers.sum(-1, keepdims=True), 1e-30)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.data())
def test_softmax_over_rows(data):
    """Whatever the mask, groups and triangle: also rows that have no element."""
    n_groups = data.draw(st.integers(1, 2))
    triangle = data.draw(st.sampled_from(list(SubBlockMask)))
    mask = np.array(
        data.draw(st.lists(st.booleans(), min_size=12 * n_groups, max_size=12 * n_groups))
    )
    x = made(np.random.default_rng(2), n_groups, 8, 12)
    blocks = blocks_of(x, (2, 4), mask)
    result = run(
        lambda g, s, t: experimental.bs_softmax(
            g, t, (8, 12), (2, 4), mask, s, sub_block_mask=triangle, n_groups=n_groups
        ),
        blocks,
    )
    want = blocks_of(softmax_of(x.astype(np.float64), mask, triangle), (2, 4), mask)
    np.testing.assert_allclose(result, want.reshape(result.shape), atol=1e-6)


def test_softmax_in_place_and_its_gradient():
    """In place gives the same; the gradient is that of NumPy's formula, block by block."""
    rng, mask = np.random.default_rng(3), np.array([1, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1], bool)
    x, g = made(rng, 1, 8, 12), made(rng, 1, 8, 12)
    blocks, gradients = (blocks_of(v, (2, 4), mask) for v in (x, g))

    def in_place(graph, sequence, t):
        experimental.bs_softmax_in_place(graph, t, (8, 12), (2, 4), mask, sequence)
        return t

    y = run(in_place, blocks)
    want = softmax_of(x.astype(np.float64), mask, NONE)
    np.testing.assert_allclose(y, blocks_of(want, (2, 4), mask), atol=1e-6)
    result = run(
        lambda graph, s, a, b: experimental.bs_softmax_grad(
            graph, a, b, (8, 12), (2, 4), mask, s
        ),
        y.astype(np.float32), gradients,
    )  # fmt: skip
    change = want * (g - (g * want).sum(-1, keepdims=True))
    np.testing.assert_allclose(result, blocks_of(change, (2, 4), mask), atol=1e-5)


@pytest.mark.parametrize(
    ("dims", "block", "mask", "types", "message"),
    [
        ((8, 16, 8), (4, 8, 8), [1], (F, F, F), "a mask of 1, expected 2"),
        ((8, 12, 8), (4, 8, 8), [1, 1], (F, F, F), "in blocks of"),
        ((9, 16, 8), (4, 8, 8), [1, 1], (F, F, F), "m = 9 in blocks of 4"),
        ((8, 16, 8), (4, 8, 8), [1, 1], (tr.INT, F, F), "operands of int"),
        ((8, 16, 8), (4, 8, 8), [1, 1], (F, F, H), "partial sums of half"),
        ((8, 16, 8), (4, 8, 8), [1, 1], (H, H, H), "8 columns of half, expected a multiple of 16"),
    ],
)
def test_params_that_contradict_themselves(dims, block, mask, types, message):
    """Types, sizes and masks are named."""
    with pytest.raises(SparsityError, match=message):
        BSMatMulParams.dense_sparse(dims, block, mask, *types)


def test_operands_and_options_that_do_not_fit():
    """Shapes of operands, passes, and methods that there are not."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=4).create_device())
    params = BSMatMulParams.dense_sparse((8, 16, 8), (4, 8, 8), [1, 0], F, F, F)
    lhs = experimental.create_bs_mat_mul_input_lhs(graph, params)
    rhs = experimental.create_bs_mat_mul_input_rhs(graph, params)
    assert (lhs.shape, rhs.shape) == ((8, 16), (1, 64))

    def multiply(a, b, **options):
        return experimental.bs_mat_mul(graph, params, tr.Sequence(), a, b, **options)

    with pytest.raises(SparsityError, match=r"right operand of float \[8, 16\], expected float"):
        multiply(lhs, lhs)
    with pytest.raises(InvalidOption, match="number_of_pass is 3 for 2 rows"):
        multiply(lhs, rhs, number_of_pass=3)
    with pytest.raises(InvalidOption, match=r"no partition_method 'strips'(.|\n)*'strip'"):
        multiply(lhs, rhs, partition_method="strips")
    with pytest.raises(SparsityError, match=r"tensor of \[1, 64\], expected \[2, 64\]"):
        experimental.bs_softmax(graph, rhs, (8, 16), (8, 8), b"\1\1", tr.Sequence())

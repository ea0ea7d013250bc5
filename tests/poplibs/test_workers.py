"""A what-if with more workers: operations share work by the chip's count, and results stay."""

import numpy as np
import pytest

import tremula as tr
from tremula.poplibs import poplin, popnn, poprand
from tremula.poplibs.popnn.pooling.plan import pool_cycles

BOW = tr.chip("bow")
CHIPS = (BOW, BOW.replace(name="twelve", n_workers=12))


def run(chip, function, arrays):
    """The results of an operation on four tiles of a chip."""
    graph = tr.Graph(tr.IPUModel(chip, tiles_per_ipu=4).create_device())
    sequence, tensors = tr.Sequence(), []
    for number, array in enumerate(arrays):
        tensor = graph.add_variable(str(array.dtype), array.shape, f"x{number}", mapping="linear")
        graph.create_host_write(f"in-{number}", tensor)
        tensors.append(tensor)
    given = function(graph, *tensors, sequence)
    results = given if isinstance(given, tuple) else (given,)
    for number, result in enumerate(results):
        graph.create_host_read(f"out-{number}", result)
    engine = tr.Engine(graph, sequence).load()
    for number, array in enumerate(arrays):
        engine.write_tensor(f"in-{number}", array)
    engine.run()
    return [np.asarray(engine.read_tensor(f"out-{n}")) for n in range(len(results))]


def random(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def whole(*shape):
    """Small whole numbers: their sums of products are exact in any order."""
    return np.random.default_rng(4).integers(-4, 5, shape).astype(np.float32)


def positive_definite(n):
    root = random(n, n)
    return root @ root.T + n * np.eye(n, dtype=np.float32)


def convolution(graph, acts, weights, sequence):
    params = poplin.ConvParams(
        type=tr.FLOAT, n_batch=2, field_shape=(9, 9), kernel_shape=(3, 3), n_in_chans=4,
        n_out_chans=5, padding_lower=(1, 1),
    )  # fmt: skip
    return poplin.convolution(graph, acts, weights, params, sequence)


def pool(graph, x, sequence):
    params = popnn.PoolParams("MAX", (2, 2), (2, 2))
    return popnn.pool(graph, x, sequence, params=params)


def ctc(graph, data, sequence):
    labels = graph.add_constant(tr.UNSIGNED_INT, [1, 3], np.array([[1, 2, 1]], np.uint32))
    lengths = [graph.add_constant(tr.UNSIGNED_INT, [1], np.array([n], np.uint32)) for n in (40, 3)]
    for constant in (labels, *lengths):
        graph.set_tile_mapping(constant, 0)
    return popnn.ctc.calc_loss_and_gradient_log_probabilities(
        graph, data, labels, *lengths, sequence
    )


def lu(graph, matrix, sequence):
    return poplin.lu_factorization(graph, matrix, sequence)


CASES = {
    "mat_mul": (poplin.mat_mul, (whole(33, 40), whole(40, 24))),
    "convolution": (convolution, (whole(2, 4, 9, 9), whole(1, 5, 4, 3, 3))),
    "pool": (pool, (random(2, 3, 16, 16),)),
    "cholesky": (poplin.cholesky, (positive_definite(40),)),
    "lu": (lu, (random(40, 40),)),
    "ctc": (ctc, (-abs(random(40, 1, 5)),)),
}


@pytest.mark.parametrize("name", CASES)
def test_results_stay(name):
    """Twice the workers, who share the same work: equal results."""
    function, arrays = CASES[name]
    six, twelve = (run(chip, function, arrays) for chip in CHIPS)
    for a, b in zip(six, twelve, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("n_rows", [240, 2400])
def test_costs_share_the_work(n_rows):
    """A tile issues one instruction a cycle however many workers take turns: cycles stay."""
    rows, one = np.array([n_rows]), np.array([1])
    six, twelve = (
        pool_cycles(rows, rows, one, rows, one, one, chip.n_workers, is_gradient=False)
        for chip in CHIPS
    )
    assert abs(twelve[0] / six[0] - 1) < 0.02


def test_random_numbers():
    """All twelve workers fill their shares, each from a separate stream."""

    def uniform(graph, reference, sequence):
        seed = graph.add_constant(tr.UNSIGNED_INT, [2], np.array([1, 2], np.uint32))
        graph.set_tile_mapping(seed, 0)
        return poprand.uniform(graph, seed, 0, reference, tr.FLOAT, 2.0, 3.0, sequence)

    (numbers,) = run(CHIPS[1], uniform, (np.zeros(4 * 12 * 8, np.float32),))
    assert ((numbers >= 2) & (numbers <= 3)).all()
    assert len(np.unique(numbers)) > 0.99 * numbers.size

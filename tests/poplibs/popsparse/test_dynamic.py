"""Dynamic sparsity: words and plans of PopLibs, layers and gradients, spilling, wrong patterns."""

import numpy as np
import pytest

import tremula as tr
from tremula.poplibs.popsparse import COOMatrix, CSRMatrix, SparsityError, dynamic
from tremula.poplibs.popsparse.dynamic import costs
from tremula.poplibs.popsparse.dynamic.costs import (
    SearchCost,
    block_cycles,
    block_start_cycles,
    element_slots,
    element_supervisor,
    element_worker,
)
from tremula.poplibs.popsparse.dynamic.meta_info import overflow_words
from tremula.poplibs.popsparse.dynamic.plan import DynamicProblem, plan_dynamic, uniform
from tremula.poplibs.popsparse.dynamic.spread import BucketLimits, spread
from tremula.poplibs.popsparse.dynamic.worker_split import split_between_workers

F, H = tr.FLOAT, tr.HALF
BOW = tr.IPUModel("bow").create_target().chip
A = np.zeros((4, 6), np.float32)
A[[0, 0, 1, 2, 2, 2, 3], [1, 4, 0, 2, 3, 5, 4]] = [1, 2, 3, 4, 5, 6, 7]
PASSES = {"do_grad_a_pass": True, "do_grad_w_pass": True}


@pytest.mark.parametrize(
    ("element", "z", "search", "cycles"),
    [(H, 8, SearchCost(), 3531), (F, 4, SearchCost(), 3393), (F, 6, SearchCost(), 9483),
     (F, 4, SearchCost(3, 1, 2), 3544)],
)  # fmt: skip
def test_element_formulae(element, z, search, cycles):
    """Ten rows of thirteen values per worker cost what PopLibs' planner says."""
    worker = element_worker("forward", 10, 130, z, element)
    assert int(element_supervisor("forward", search) + 6 * worker) == cycles


@pytest.mark.parametrize(
    ("element", "z", "slots"),
    [(H, 8, 28 + 10 * 15 + 3 * 130), (H, 16, 33 + 10 * 12 + 2 * (170 + 390)),
     (H, 20, 33 + 10 * 12 + 2 * (170 + 390) + 150 + 260), (F, 12, 30 + 10 * 12 + 3 * (120 + 390)),
     (F, 6, 30 + 10 * 12 + 120 + 390 + 120 + 260)],
)  # fmt: skip
def test_each_group_of_columns_is_surrounded_alike(element, z, slots):
    """Ten rows of thirteen values: what surrounds a group's values is counted for each group."""
    assert int(element_slots(10, 130, z, element)) == slots
    assert int(element_slots(0, 0, z, element)) == 0


def test_block_formulae():
    """Eight rows of five blocks on the matrix unit, forward and backward."""
    result = [
        block_cycles(8, 40, 4, 16, (H, F), SearchCost(), 6),
        block_cycles(8, 40, 4, 16, (H, H), SearchCost(), 6),
        block_cycles(8, 40, 4, 4, (F, F), SearchCost(), 6, is_gradient=True),
    ]
    assert [int(cycles) for cycles in result] == [21690, 11844, 8420]


def test_workers_of_blocks_start_in_each_bucket():
    """Five rows in three buckets: two more starts, and where rows begin; without blocks none."""
    result = [
        block_start_cycles(5, 3, 16, (H, F), 6),
        block_start_cycles(5, 3, 8, (H, F), 6, is_gradient=True),
        block_start_cycles(0, 0, 16, (H, F), 6),
    ]
    assert [int(cycles) for cycles in result] == [6 * (2 * 23 + 15), 6 * 2 * 20, -6 * 23]


def test_shares_of_workers():
    """Few cells go one by one; the largest rectangles are halved until every worker has one."""
    assert [len(split_between_workers(*s, 6)) for s in ((4, 1), (1, 5), (2, 2))] == [4, 5, 4]
    assert split_between_workers(7, 3, 6) == (
        (2, 4, 2, 3), (4, 7, 0, 2), (0, 2, 0, 2), (4, 7, 2, 3), (0, 2, 2, 3), (2, 4, 0, 2),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("problem", "found"),
    [((256, 256, 16, 16, 1 / 16, H, F), (9929, 8704, 4, 2, 2, 256, 24)),
     ((256, 256, 16, 8, 1 / 16, F, F), (12377, 8064, 4, 4, 1, 320, 32))],
)  # fmt: skip
def test_plans_are_those_of_poplibs(problem, found):
    """Cycles, bytes, partition and bucket sizes of products of blocks on 16 tiles."""
    plan = plan_dynamic(DynamicProblem(*problem, with_grad_a=True), BOW, 16)
    sizes = plan.cycles, plan.n_bytes, plan.x, plan.y, plan.z, plan.n_values, plan.n_meta
    assert sizes == found


@pytest.mark.parametrize(
    ("n_batch", "found"), [(8192, (275252, 4, 5, 64)), (16384, (550504, 5, 1, 256))]
)
def test_memory_of_a_plan_counts_the_sums(n_batch, found):
    """A reduction holds partial results, those received and its sums at once.

    With 8192 columns those are 131,072 bytes twice and 13,108 of sums. With 16,384 the plan that
    would keep to 60 % of a tile without its sums (362,288 bytes) does not with them.
    """
    problem = DynamicProblem(1024, 1024, n_batch, 16, 1 / 16, H, F, with_grad_a=True)
    plan = plan_dynamic(problem, BOW, BOW.n_tiles)
    assert (plan.n_bytes, plan.x, plan.y, plan.z) == found


def test_uniform_patterns():
    """Rows with any non-zero, and how many each has."""
    result = [uniform(0.1, 64, 64), uniform(0.01, 32, 1024), uniform(0.5, 4, 6)]
    assert [(int(a), int(b)) for a, b in result] == [(64, 7), (32, 11), (4, 3)]


def one_tile() -> tr.Target:
    return tr.IPUModel("bow", tiles_per_ipu=1).create_target()


def test_words_are_those_of_poplibs():
    """The bucket of the worked example, word for word; with gradients of values it has more."""
    params = dynamic.MatMulParams.create_with_nz_ratio(7 / 24, 1, 4, 6, 2)
    partitioner = dynamic.Partitioner(params, F, one_tile())
    data = partitioner.create_sparsity_data(CSRMatrix.from_dense(A))
    assert (partitioner.plan.n_values, partitioner.plan.n_meta) == (9, 100)
    assert data.meta_info[:4].tolist() == [1, 1, 1, 1]
    wanted = [
        1, 0, 0, 7, 44, 2, 3, 29, 4, 0, 2, 0, 0, 20, 3, 2, 0, 0, 20, 5, 2, 0, 0, 19, 6, 2, 0, 0,
        17, 2, 3, 16, 24, 40, 0, 2, 8, 32, 1, 1, 0, 3, 1, 32, 0,
    ]  # fmt: skip
    assert data.meta_info[4:49].tolist() == wanted
    assert data.nz_values.tolist() == [4, 5, 6, 1, 2, 3, 7, 0, 0]
    layer = dynamic.FullyConnectedParams.create_with_nz_ratio(7 / 24, 2, 6, 4)
    more = dynamic.Partitioner(layer, F, one_tile(), do_grad_w_pass=True)
    words = more.create_sparsity_data(CSRMatrix.from_dense(A)).meta_info[4:]
    assert (words[4], words[7], np.flatnonzero(words)[-1] + 1) == (69, 54, 69)


def test_what_is_too_much_goes_to_the_next_bucket():
    """Two partitions of two rows, room for three: the second row moves, and one step is said."""
    row, column = np.array([0, 0, 0, 1]), np.array([0, 1, 2, 3])
    pieces, n_left = spread(row, column, (2, 4), (2, 1, 1), BucketLimits(3, 99, 9))
    assert n_left == 0
    assert pieces.bucket.tolist() == [0, 1]
    assert (pieces.row.tolist(), pieces.sub_group.tolist()) == ([0, 1], [0, 0])
    plan = plan_dynamic(DynamicProblem(4, 4, 2, 1, 0.25, F, F), BOW, 1)
    two = type(plan)(plan.problem, 0, 0, 2, 1, 1, 3, 99, 1, 1)
    assert overflow_words(two, pieces).tolist() == [2, 1, 1, 3]
    _, n_left = spread(row, column, (2, 4), (2, 1, 1), BucketLimits(1, 99, 9))
    assert n_left == 2


def matrix(present: np.ndarray, side: int, rng: np.random.Generator, element) -> CSRMatrix:
    """Random values at the blocks that are present."""
    whole = np.kron(present, np.ones((side, side), np.float32))
    pattern = CSRMatrix.from_dense(whole, (side, side))
    return pattern.with_values(rng.standard_normal(len(pattern.nz_values)).astype(element.dtype))


class Layer:
    """A layer with all its passes on 16 tiles, whose pattern can change between runs."""

    def __init__(self, shape, side, element, ratio, oversize=0.3):
        n_out, n_in, n_batch = shape
        self.element = element
        self.params = dynamic.FullyConnectedParams.create_with_nz_ratio(
            ratio, n_batch, n_in, n_out, block=side
        )
        options = {**PASSES, "meta_info_bucket_oversize_proportion": oversize}
        graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=16).create_device())
        sequence = tr.Sequence()
        weights = dynamic.create_fully_connected_weights(graph, element, self.params, **options)
        x = dynamic.create_fully_connected_input(graph, element, self.params)
        gradient = graph.add_variable(element, [n_batch, n_out], "gradient", mapping="linear")
        results = {
            "out": dynamic.fully_connected_fwd(graph, weights, x, sequence),
            "back": dynamic.fully_connected_grad_a(graph, weights, gradient, sequence),
            "change": dynamic.fully_connected_sparse_grad_w(graph, weights, gradient, x, sequence),
        }
        inputs = {"meta": weights.meta_info, "values": weights.nz_values, "x": x, "g": gradient}
        for name, tensor in inputs.items():
            graph.create_host_write(name, tensor)
        for name, tensor in results.items():
            graph.create_host_read(name, tensor)
        self.partitioner = dynamic.Partitioner(self.params, element, graph.target, **options)
        self.engine = tr.Engine(graph, sequence, {"debug.strict": "true"}).load()

    def check(self, weights: CSRMatrix, rng: np.random.Generator) -> dynamic.SparsityData:
        """One run with this matrix gives NumPy's results."""
        data = self.partitioner.create_sparsity_data(weights)
        n = self.params.n_batch
        x, g = (
            rng.standard_normal((n, s)).astype(self.element.dtype)
            for s in (self.params.n_in, self.params.n_out)
        )
        for name, array in (
            ("meta", data.meta_info),
            ("values", data.nz_values),
            ("x", x),
            ("g", g),
        ):
            self.engine.write_tensor(name, array)
        self.engine.run()
        dense, x, g = (
            weights.to_dense().astype(np.float64),
            x.astype(np.float64),
            g.astype(np.float64),
        )
        change = self.partitioner.to_csr(data.meta_info, self.engine.read_tensor("change"))
        tolerance = 1e-4 if self.element is F else 2e-2
        for result, wanted in (
            (self.engine.read_tensor("out"), x @ dense.T),
            (self.engine.read_tensor("back"), g @ dense),
            (change.nz_values, change.values_of(g.T @ x)),
        ):
            assert np.allclose(result, wanted, rtol=tolerance, atol=tolerance * np.sqrt(n))
        back = self.partitioner.to_coo(data.meta_info, data.nz_values)
        assert np.array_equal(back.to_dense(), weights.to_dense())
        return data


@pytest.mark.parametrize(
    ("shape", "side", "element"),
    [((24, 40, 8), 1, F), ((48, 64, 16), 1, H), ((64, 96, 12), 16, H), ((32, 48, 5), 16, F),
     ((16, 24, 3), 4, H)],
)  # fmt: skip
def test_layers_and_their_gradients(shape, side, element):
    """Random patterns, empty ones and a full row, one after the other in the same program."""
    rng = np.random.default_rng(0)
    layer = Layer(shape, side, element, 0.4, oversize=1.0)
    sides = shape[0] // side, shape[1] // side
    row = np.zeros(sides, bool)
    row[sides[0] // 2] = True
    for present in (rng.random(sides) < 0.3, np.zeros(sides, bool), row):
        layer.check(matrix(present, side, rng, element), rng)


@pytest.mark.parametrize(("side", "n"), [(1, 48), (4, 16)])
def test_uneven_patterns_spill_and_are_right(side, n):
    """All non-zeros in one corner fill others' buckets; steps of propagation find them."""
    rng = np.random.default_rng(1)
    layer = Layer((n * side, n * side, 4), side, F, 0.25, oversize=1.0)
    present = np.zeros((n, n), bool)
    present[n // 2 :, n // 2 :] = rng.random((n // 2, n // 2)) < 0.95
    data = layer.check(matrix(present, side, rng, F), rng)
    assert data.meta_info[:2].tolist() != [1, 1]
    even = layer.check(matrix(np.eye(n) > 0, side, rng, F), rng)
    assert even.meta_info[:2].tolist() == [1, 1]


def test_too_many_non_zeros_change_nothing():
    """A full matrix is refused with numbers, and the one before is still there."""
    rng = np.random.default_rng(2)
    layer = Layer((24, 40, 8), 1, F, 0.2)
    good = matrix(rng.random((24, 40)) < 0.15, 1, rng, F)
    data = layer.check(good, rng)
    with pytest.raises(SparsityError, match=r"Overflow in buckets: \d+ of 960"):
        layer.partitioner.create_sparsity_data(CSRMatrix.from_dense(np.ones((24, 40), np.float32)))
    assert layer.partitioner.to_csr(data.meta_info, data.nz_values) == good


def test_new_values_for_a_known_pattern():
    """Values alone can change: the words stay."""
    params = dynamic.MatMulParams.create_with_nz_ratio(7 / 24, 1, 4, 6, 2)
    partitioner = dynamic.Partitioner(params, F, one_tile())
    csr = CSRMatrix.from_dense(A)
    data = partitioner.create_sparsity_data(csr)
    values = partitioner.values_of(data, csr.with_values(10 * csr.nz_values))
    assert values.tolist() == (10 * data.nz_values).tolist()


def test_forecasts_know_what_each_bucket_has():
    """A known pattern's rows and values are counted, and its cycles are those of this load."""
    params = dynamic.MatMulParams.create_with_nz_ratio(0.3, 1, 32, 48, 8)
    model = tr.IPUModel("bow", tiles_per_ipu=16)
    partitioner = dynamic.Partitioner(params, F, model.create_target())
    cycles = []
    for density in (0.05, 0.25):
        rng = np.random.default_rng(3)
        pattern = matrix(rng.random((32, 48)) < density, 1, rng, F)
        known = partitioner.known(partitioner.create_sparsity_data(pattern))
        assert known.ends == (1, 1)
        assert known.blocks.sum() == len(pattern.nz_values)
        n_products = (known.loads[..., 1] * known.loads[..., 2]).sum()
        assert n_products == len(pattern.nz_values) * partitioner.plan.tile_z
        graph, sequence = tr.Graph(model.create_device()), tr.Sequence()
        lhs = dynamic.create_sparse_dense_mat_mul_lhs(graph, F, params)
        rhs = dynamic.create_sparse_dense_mat_mul_rhs(graph, F, params)
        dynamic.sparse_dense_mat_mul(graph, lhs, rhs, sequence, known=known)
        cycles.append(tr.forecast(tr.compile_graph(graph, sequence)).total_cycles)
    assert cycles[0] < cycles[1]


def test_a_known_pattern_starts_workers_in_the_buckets_that_have_blocks(monkeypatch):
    """Four blocks in the buckets of four tiles: three starts more than the formula has."""
    params = dynamic.MatMulParams.create_with_nz_ratio(1.0, 1, 32, 32, 2048, block=16)
    pattern = CSRMatrix.from_dense(np.ones((32, 32), np.float32), (16, 16))
    cycles = []
    for _ in range(2):
        graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=4).create_device())
        sequence, partitioner = tr.Sequence(), dynamic.Partitioner(params, H, graph.target)
        known = partitioner.known(partitioner.create_sparsity_data(pattern))
        assert known.blocks.tolist() == [[1, 1, 1, 1]]
        lhs = dynamic.create_sparse_dense_mat_mul_lhs(graph, H, params)
        rhs = dynamic.create_sparse_dense_mat_mul_rhs(graph, H, params)
        dynamic.sparse_dense_mat_mul(graph, lhs, rhs, sequence, known=known)
        cycles.append(tr.forecast(tr.compile_graph(graph, sequence)).total_cycles)
        monkeypatch.setattr(costs, "block_start_cycles", lambda *_, **__: 0)
    assert cycles[0] - cycles[1] == 6 * (3 * 23 + 4 * 3)


def test_embeddings_with_a_sparse_table():
    """Rows [2, 0, 2] of the table, and additions to them at the pattern alone."""
    params = dynamic.FullyConnectedParams.create_with_nz_ratio(0.5, 4, 6, 4)
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=4).create_device())
    first, second = tr.Sequence(), tr.Sequence()
    table = dynamic.create_fully_connected_weights(graph, F, params, **PASSES)
    indices = dynamic.create_indices_tensor(graph, params)
    slices = dynamic.create_fully_connected_input(graph, F, params)
    rows = dynamic.embedding_slice(graph, table, indices, first)
    dynamic.embedding_update_add(graph, table, slices, indices, second, scale=0.5)
    for name, tensor in (("meta", table.meta_info), ("values", table.nz_values)):
        graph.create_host_write(name, tensor)
        graph.create_host_read(name, tensor)
    graph.create_host_write("indices", indices)
    graph.create_host_write("slices", slices)
    graph.create_host_read("rows", rows)
    engine = tr.Engine(graph, [first, second]).load()
    partitioner = dynamic.Partitioner(params, F, graph.target, **PASSES)
    data = partitioner.create_sparsity_data(CSRMatrix.from_dense(A))
    added = np.zeros((4, 6), np.float32)
    added[:3] = np.arange(1, 19).reshape(3, 6)
    for name, array in (
        ("meta", data.meta_info), ("values", data.nz_values), ("slices", added),
        ("indices", np.array([2, 0, 2, 1], np.uint32)),
    ):  # fmt: skip
        engine.write_tensor(name, array)
    engine.run(0)
    assert engine.read_tensor("rows").tolist() == A[[2, 0, 2, 1]].tolist()
    engine.run(1)
    result = partitioner.to_csr(data.meta_info, engine.read_tensor("values")).to_dense()
    assert result[0, [1, 4]].tolist() == [5, 7.5]
    assert result[2, [2, 3, 5]].tolist() == [13, 15, 18]
    assert result[[1, 3]].tolist() == A[[1, 3]].tolist()


def test_rows_that_a_table_lacks_are_zero():
    """More indices than the plan's batch, of which some are past the last row, in blocks."""
    dense = np.kron(np.eye(4, 3), np.ones((4, 4), np.float32))
    params = dynamic.FullyConnectedParams.create_with_nz_ratio(1.0, 2, 12, 16, block=4)
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=8).create_device())
    sequence = tr.Sequence()
    table = dynamic.create_fully_connected_weights(graph, F, params)
    indices = dynamic.create_indices_tensor(graph, params, 9)
    rows = dynamic.embedding_slice(graph, table, indices, sequence)
    for name, tensor in (("meta", table.meta_info), ("values", table.nz_values), ("at", indices)):
        graph.create_host_write(name, tensor)
    graph.create_host_read("rows", rows)
    engine = tr.Engine(graph, sequence).load()
    partitioner = dynamic.Partitioner(params, F, graph.target)
    data = partitioner.create_sparsity_data(CSRMatrix.from_dense(dense, (4, 4)))
    asked = np.array([15, 0, 5, 16, 5, 11, 12, 99, 2], np.uint32)
    for name, array in (("meta", data.meta_info), ("values", data.nz_values), ("at", asked)):
        engine.write_tensor(name, array)
    engine.run()
    expected = np.concatenate((dense, np.zeros((84, 12), np.float32)))[asked]
    assert engine.read_tensor("rows").tolist() == expected.tolist()


def test_wrong_embeddings_are_named():
    """Indices and slices of other types and shapes, and a table without gradients of values."""
    params = dynamic.FullyConnectedParams.create_with_nz_ratio(0.5, 4, 6, 4)
    graph, sequence = tr.Graph(one_tile()), tr.Sequence()
    indices = dynamic.create_indices_tensor(graph, params)
    slices = dynamic.create_slice_tensor(graph, F, params)
    plain = dynamic.create_fully_connected_weights(graph, F, params)
    table = dynamic.create_fully_connected_weights(graph, F, params, **PASSES)
    with pytest.raises(SparsityError, match=r"got indices of float \[4, 6\]"):
        dynamic.embedding_slice(graph, table, slices, sequence)
    with pytest.raises(SparsityError, match="without do_grad_w_pass"):
        dynamic.embedding_update_add(graph, plain, slices, indices, sequence)
    short = slices.slice(0, 3, 0)
    with pytest.raises(SparsityError, match=r"float \[3, 6\], expected float \[4, 6\]"):
        dynamic.embedding_update_add(graph, table, short, indices, sequence)


def test_wrong_matrices_are_named():
    """Sizes, order, duplicates, ratios, batches and foreign words: each is said."""
    params = dynamic.MatMulParams.create_with_nz_ratio(0.5, 1, 4, 6, 2)
    partitioner = dynamic.Partitioner(params, F, one_tile())
    csr = CSRMatrix.from_dense(A)
    with pytest.raises(SparsityError, match=r"\[6, 4\] for a layer of \[4, 6\]"):
        partitioner.create_sparsity_data(CSRMatrix.from_dense(A.T))
    columns = np.array([4, 1, 0, 2, 3, 5, 4])
    with pytest.raises(SparsityError, match="entry 1 of row 0 is out of order"):
        partitioner.create_sparsity_data(CSRMatrix(4, 6, csr.nz_values, columns, csr.row_indices))
    twice = COOMatrix(4, 6, np.ones(2, np.float32), np.array([3, 3]), np.array([1, 1]))
    with pytest.raises(SparsityError, match="row 1, column 3 occurs twice"):
        partitioner.create_sparsity_data(twice)
    with pytest.raises(SparsityError, match="expected one from 0 to 1"):
        dynamic.MatMulParams.create_with_nz_ratio(1.5, 1, 4, 6, 2)
    with pytest.raises(SparsityError, match="25 non-zeros"):
        dynamic.MatMulParams.create_with_num_non_zero_values(25, 1, 4, 6, 2)
    odd = dynamic.MatMulParams.create_with_nz_ratio(0.5, 1, 4, 6, 3)
    with pytest.raises(SparsityError, match="a multiple of 2"):
        dynamic.Partitioner(odd, F, one_tile())
    data = partitioner.create_sparsity_data(csr)
    with pytest.raises(SparsityError, match="meta-info of 3 words"):
        partitioner.to_coo(data.meta_info[:3], data.nz_values)
    broken = data.meta_info.copy()
    broken[5] = 9  # the x partition of the first sub-group
    with pytest.raises(SparsityError, match="possibly corrupt"):
        partitioner.to_coo(broken, data.nz_values)


def test_the_dense_operand_is_arranged_once():
    """Each tile gets its part of the dense operand before the distribution and keeps it."""
    params = dynamic.MatMulParams.create_with_nz_ratio(0.25, 1, 64, 64, 8)
    graph, sequence = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=16).create_device()), tr.Sequence()
    lhs = dynamic.create_sparse_dense_mat_mul_lhs(graph, F, params)
    rhs = graph.add_variable(F, [64, 8], "rhs", mapping="linear")
    dynamic.sparse_dense_mat_mul(graph, lhs, rhs, sequence)
    steps = tr.Engine(graph, sequence).report().steps
    products = [i for i, name in enumerate(steps.name) if name.endswith("multiply")]
    assert lhs.plan.z == 1  # no other tile has a part of this tile's bucket
    assert len(products) == 4  # of the distribution, along y, x and y
    assert not steps.exchange[products].any()
    assert sum(name.endswith("operand") for name in steps.name) == 1

"""Replicas: variables by group, collectives against NumPy, shards, remote memory."""

import numpy as np
import pytest

import popxl
from popxl import ops
from tests.frontends.popxl.runs import run

N = 4
DATA = np.random.default_rng(3).normal(size=(N, 2, 6)).astype(np.float32)


def collective(build, group=(1, N), data=DATA):
    """Run an operation on a different array on each replica; results by replica."""
    ir = popxl.Ir(replication=N)
    with ir.main_graph:
        t = popxl.variable(data, replica_grouping=ir.replica_grouping(1, 1))
        out = build(t, ir.replica_grouping(*group))
    (result,) = run(ir, [out])
    return result


@pytest.mark.parametrize("group", [(1, 4), (1, 2), (2, 2)])
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("add", np.sum), ("mean", np.mean), ("mul", np.prod), ("min", np.min), ("max", np.max),
        ("square_add", lambda x, axis: np.sum(x * x, axis)),
    ],
)  # fmt: skip
def test_all_reduce(group, name, function):
    """Every replica of a group has the combined values of the group."""
    result = collective(lambda t, g: ops.collectives.replicated_all_reduce(t, name, g), group)
    for members in popxl.Ir(replication=N).replica_grouping(*group).members:
        for r in members:
            np.testing.assert_allclose(result[r], function(DATA[members], 0), rtol=1e-5)


def test_all_reduce_in_place_of_booleans():
    """`and` and `or` combine booleans; the in-place form writes its operand."""
    data = np.array([[True, False], [True, True], [False, True], [True, True]])
    result = collective(
        lambda t, g: ops.collectives.replicated_all_reduce_(t, "and", g), (1, 2), data
    )
    assert result.tolist() == [[True, False]] * 2 + [[False, True]] * 2


@pytest.mark.parametrize("form", ["concat", "new_axis"])
def test_all_gather(form):
    """Values of a group stand one behind the other, along a dimension or a new one."""
    result = collective(lambda t, g: ops.collectives.replicated_all_gather(t, 1, g, form), (2, 2))
    join = np.concatenate if form == "concat" else np.stack
    np.testing.assert_array_equal(result[1], join([DATA[1], DATA[3]], 1))


def test_reduce_scatter_and_slices():
    """Parts of the sum, of a replica's own tensor, and along a dimension."""
    result = collective(lambda t, g: ops.collectives.replicated_reduce_scatter(t, "add", g))
    np.testing.assert_allclose(result.reshape(2, 6), DATA.sum(0), rtol=1e-5)
    local = collective(ops.collectives.replica_sharded_slice)
    np.testing.assert_array_equal(local[2], DATA[2].reshape(-1)[6:9])
    part = collective(lambda t, g: ops.collectives.replicated_slice(t, 1, g), (2, 2))
    np.testing.assert_array_equal(part[3], DATA[3][:, 3:])
    one = collective(lambda t, g: ops.collectives.replicated_slice(t, 0, g), (1, 2))
    np.testing.assert_array_equal(one[1], DATA[1][1])


def test_gradients_of_gathers_and_slices():
    """That of a gather is each replica's own part, that of a slice the gather of all parts."""
    ir = popxl.Ir(replication=N)
    with ir.main_graph:
        group = ir.replica_grouping()
        t = popxl.variable(DATA, replica_grouping=ir.replica_grouping(1, 1))
        weight = popxl.variable(np.arange(48, dtype=np.float32).reshape(2, 24))

        def gathered(x, w):
            return ops.collectives.replicated_all_gather(x, 1, group) * w

        def sliced(x):
            return ops.collectives.replicated_slice(ops.reshape(x, (12,)), 0, group)

        made = []
        for fn, args in ((gathered, (t, weight)), (sliced, (t,))):
            graph = ir.create_graph(fn, *args)
            info = ops.call_with_info(graph, *args)
            grad = popxl.transforms.autodiff(graph, grads_required=[graph.inputs[0]])
            seed = popxl.constant(np.ones(graph.outputs[0].shape, np.float32))
            made += ops.call(grad.graph, seed, inputs_dict=grad.inputs_dict(info))
    by_gather, by_slice = run(ir, made)
    whole = np.arange(48, dtype=np.float32).reshape(2, 24)
    np.testing.assert_array_equal(by_gather[2], whole[:, 12:18])
    np.testing.assert_array_equal(by_slice[0], np.ones((2, 6)))


def test_all_reduce_has_no_gradient():
    """Differentiating an all-reduce is an error that says what to use."""
    from popart import popart_exception

    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        t = popxl.variable(1.0)
        graph = ir.create_graph(lambda x: ops.collectives.replicated_all_reduce(x) * 2.0, t)
        with pytest.raises(popart_exception, match="identical_inputs"):
            popxl.transforms.autodiff(graph)


def test_chips_of_a_replica():
    """`all_reduce` combines tensors of several chips; its twins differ in their gradients."""
    ir = popxl.Ir()
    with ir.main_graph:

        def body(fn):
            def build(a, b):
                with popxl.ipu(1):
                    c = ops.ipu_copy(b, 1, 0)
                return fn([a + 0.0, c], [0, 1])

            return build

        a, b = popxl.variable(2.0), popxl.variable(5.0)
        tensors = []
        for name in (
            "all_reduce",
            "all_reduce_identical_inputs",
            "all_reduce_identical_grad_inputs",
        ):
            graph = ir.create_graph(body(getattr(ops.collectives, name)), a, b)
            info = ops.call_with_info(graph, a, b)
            grad = popxl.transforms.autodiff(graph)
            seeds = [popxl.constant(1.0), popxl.constant(10.0)]
            tensors += info.outputs[:2]
            tensors += ops.call(grad.graph, *seeds, inputs_dict=grad.inputs_dict(info))
    result = [float(x) for x in run(ir, tensors)]
    assert result == [7, 7, 11, 11, 2, 5, 11, 11, 7, 7, 1, 10]


def test_a_grouping_without_stride_holds_variables_only():
    """Such a partition may hold a variable, but no collective takes it."""
    ir = popxl.Ir(replication=4)
    group = ir.replica_grouping_from_assignments([0, 1, 1, 0])
    with ir.main_graph:
        v = popxl.variable(np.float32([1, 2]), replica_grouping=group)
        with pytest.raises(ValueError, match="constant stride"):
            ops.collectives.replicated_all_reduce(v, group=group)
        out = v + 0.0
    (result,) = run(ir, [out])
    assert result.tolist() == [1, 2, 2, 1]


@pytest.mark.parametrize("n_runs", [1, 3])
def test_sharded_variables(n_runs):
    """Shards on chip and in remote memory are updated part by part and read back whole."""
    ir = popxl.Ir(replication=N)
    with ir.main_graph:
        full, shard = popxl.replica_sharded_variable(np.arange(6, dtype=np.float32))
        ops.add_(shard, 1.0)
        buffer = popxl.replica_sharded_buffer((2, 3), popxl.float32, None, None, 2)
        data = np.arange(6, dtype=np.float32).reshape(2, 3)
        remote = popxl.remote_replica_sharded_variable(data, buffer, 1)
        part = ops.remote_load(buffer, 1)
        assert (part.shape, part.meta_shape) == ((2,), (2, 3))
        whole = ops.collectives.replicated_all_gather(part)
        assert whole.shape == (2, 3)
        new = ops.collectives.replica_sharded_slice(whole * 2.0)
        ops.remote_store(buffer, 1, new)
    with popxl.Session(ir, "cpu") as session:
        for _ in range(n_runs):
            session.run()
        np.testing.assert_array_equal(session.get_tensor_data(full), np.arange(6) + n_runs)
        np.testing.assert_array_equal(session.get_tensor_data(remote), data * 2**n_runs)


def test_retrieval_modes():
    """One value for each group, or all; replicas of a group that diverged give the first."""
    ir = popxl.Ir(replication=4)
    with ir.main_graph:
        group = ir.replica_grouping(1, 2)
        v = popxl.variable(np.float32([1, 2]), replica_grouping=group)
        w = popxl.variable(1.0, retrieval_mode="all_replicas")
        own = popxl.variable(np.float32([0, 1, 2, 3]), replica_grouping=ir.replica_grouping(1, 1))
        ops.add_(v, own)
        ops.add_(w, own)
    assert v.shape_on_host == (2,)
    assert v.shape_on_replica == ()
    with popxl.Session(ir, "cpu") as session:
        session.run()
        assert session.get_tensor_data(v).tolist() == [1, 4]
        assert session.get_tensor_data(w).tolist() == [1, 2, 3, 4]

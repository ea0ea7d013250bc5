"""Collectives of the add-ons and their gradients; losses over IPUs; seeds; groups of domains."""

import numpy as np
import pytest
import torch

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.named_replica_grouping import (
    NamedReplicaGrouping,
    fill_none_group,
    get_ild_replica_grouping,
    get_instance_replica_grouping,
    is_cross_ild,
)
from popxl_addons.ops.cross_entropy_sharded_wr_loss import cross_entropy_sharded_wr_loss
from popxl_addons.ops.grad_reduce_square_add import grad_reduce_square_add
from popxl_addons.ops.linear_layout import linear_layout
from popxl_addons.ops.replicated_all_reduce_TP import (
    replicated_all_reduce,
    replicated_all_reduce_identical_grad_inputs,
    replicated_all_reduce_identical_inputs,
)
from popxl_addons.ops.replicated_strided_collectives import (
    replicated_all_gather_strided,
    replicated_all_reduce_strided,
    replicated_all_reduce_strided_graph,
    replicated_all_reduce_strided_identical_grad_inputs,
    replicated_all_reduce_strided_identical_inputs,
    replicated_reduce_scatter_strided,
)
from tests.frontends.popxl_addons.graphs.test_module import run

N, STRIDE = 4, 2
INPUTS = np.arange(N * 6, dtype=np.float32).reshape(N, 2, 3)
SUMS = np.stack([INPUTS[i % STRIDE :: STRIDE].sum(0) for i in range(N)])


@pytest.mark.parametrize(
    ("function", "forward", "backward"),
    [
        (replicated_all_reduce, SUMS, SUMS),
        (replicated_all_reduce_identical_inputs, INPUTS, SUMS),
        (replicated_all_reduce_identical_grad_inputs, SUMS, INPUTS),
        (replicated_all_reduce_strided, SUMS, SUMS),
        (replicated_all_reduce_strided_identical_inputs, INPUTS, SUMS),
        (replicated_all_reduce_strided_identical_grad_inputs, SUMS, INPUTS),
    ],
)
def test_sums_of_groups_and_their_gradients(function, forward, backward):
    """Which way the sum is taken is what the names say, for groups with a stride."""
    ir = popxl.Ir(replication=N)
    with ir.main_graph:
        stream = popxl.h2d_stream((2, 3), popxl.float32)
        x = ops.host_load(stream)
        graph = ir.create_graph(function, x, group=ir.replica_grouping(STRIDE, 2))
        gradient = popxl.transforms.autodiff(graph).graph
        results = [addons.host_store(ops.call(g, x)[0]) for g in (graph, gradient)]
    addons.apply_pre_alias_patterns(ir)
    with popxl.Session(ir, "ipu_hw") as session:
        outputs = session.run({stream: INPUTS})
    for result, expected in zip(results, (forward, backward), strict=True):
        np.testing.assert_array_equal(outputs[result], expected)


def test_shards_of_sums_are_gathered():
    """Reduce-scatter and all-gather of groups with a stride are an all-reduce; means divide."""
    ir = popxl.Ir(replication=N)
    with ir.main_graph:
        group = ir.replica_grouping(STRIDE, 2)
        stream = popxl.h2d_stream((2, 3), popxl.float32)
        x = ops.host_load(stream)
        part = replicated_reduce_scatter_strided(
            x, group=group, configure_output_for_replicated_tensor_sharding=True
        )
        assert part.meta_shape == (2, 3)
        whole = replicated_all_gather_strided(part, group=group)
        named = addons.NamedTensors(x=x)
        graph, names = replicated_all_reduce_strided_graph(named, "mean", group)
        mean = addons.NamedTensors.pack(names, graph.bind(named).call()).x
        streams = [addons.host_store(t) for t in (whole, mean)]
    with popxl.Session(ir, "ipu_hw") as session:
        outputs = session.run({stream: INPUTS})
    np.testing.assert_array_equal(outputs[streams[0]], SUMS)
    np.testing.assert_array_equal(outputs[streams[1]], SUMS / 2)


def test_cross_entropy_over_the_ipus_of_a_replica():
    """Classes on several IPUs, not the same number on each: losses and gradients of the whole."""
    draw = np.random.default_rng(0)
    parts = [draw.normal(size=(5, n)).astype(np.float32) for n in (4, 3)]
    labels = np.array([0, 6, 3, 4, 2], np.int32)
    seed = draw.normal(size=5).astype(np.float32)

    class Loss(addons.Module):
        def build(self, logits, labels, ipus):
            return cross_entropy_sharded_wr_loss(logits, labels, ipus)

    ir = popxl.Ir()
    with ir.main_graph:
        logits, copies = [], []
        for i, part in enumerate(parts):
            with popxl.ipu(i):
                logits.append(popxl.variable(part) + 0)
                copies.append(popxl.variable(labels) + 0)
        with popxl.ipu(0):
            dy = popxl.variable(seed) + 0
        _, graph = Loss().create_graph(logits, copies, ipus=[0, 1])
        gradient = addons.autodiff(graph, grads_required=graph.graph.inputs[:2])
        call = graph.call_with_info(logits, copies)
        grads = gradient.call(dy, args=gradient.grad_graph_info.inputs_dict(call))
        streams = []
        for i, t in enumerate([call.outputs[0], *grads]):
            with popxl.ipu(max(0, i - 1)):
                streams.append(addons.host_store(t))
        with pytest.raises(ValueError, match="same number of logits and indices"):
            cross_entropy_sharded_wr_loss(logits, copies[:1])
    with popxl.Session(ir, "ipu_hw") as session:
        outputs = session.run()
    x = torch.tensor(np.concatenate(parts, 1), requires_grad=True)
    loss = torch.nn.functional.cross_entropy(x, torch.from_numpy(labels).long(), reduction="none")
    loss.backward(torch.from_numpy(seed))
    np.testing.assert_allclose(outputs[streams[0]], loss.detach(), rtol=1e-5, atol=1e-6)
    result = np.concatenate([outputs[s] for s in streams[1:]], 1)
    np.testing.assert_allclose(result, x.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_cross_entropy_and_its_scaled_gradient(reduction):
    """Ignored labels count nowhere; the loss is not scaled, its gradient is."""
    draw = np.random.default_rng(1)
    logits, labels = draw.normal(size=(6, 9)).astype(np.float32), np.array([1, 0, 8, 0, 3, 2])
    ir = popxl.Ir()
    with ir.main_graph:
        x, target = popxl.variable(logits), popxl.variable(labels.astype(np.uint32))
        loss = addons.cross_entropy(x, target, 0, reduction)
        again, grad = addons.cross_entropy_with_grad(x, target, 64, 0, reduction)
    results = run(ir, loss, again, grad)
    t = torch.tensor(logits, requires_grad=True)
    expected = torch.nn.functional.cross_entropy(
        t, torch.from_numpy(labels), ignore_index=0, reduction=reduction
    )
    (64 * expected).backward()
    for result, value in zip(results, (expected.detach(), expected.detach(), t.grad), strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-5)


def test_floating_point_operations_are_counted(capsys):
    """Products, elements and norms, in loops as often as they run, on all replicas."""
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        x = popxl.variable(INPUTS[0])
        _ = x @ popxl.constant(np.ones((3, 5), np.float32))
        body = ir.create_graph(lambda t: t * t, x)
        ops.repeat(body, 7, x)
    flops = addons.evaluate_FLOPs(ir.main_graph)
    assert flops["MatMul"] == {100: 2 * 2 * 3 * 5}
    assert flops["TOT"] == 60 + 7 * 6
    assert addons.total_FLOPs(ir) == 2 * 102
    for mode in ("type", "flat"):
        addons.print_FLOPs(flops, mode)
    assert "MatMul.100" in capsys.readouterr().out


def test_norms_and_layouts():
    """Squared norms without the loss scaling; layouts keep values."""
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(INPUTS[0])
        norm = grad_reduce_square_add(x, 64)
        copy = linear_layout(x, 3)
    norm, copy = run(ir, norm, copy)
    np.testing.assert_allclose(norm, ((INPUTS[0] / 64) ** 2).sum(), rtol=1e-6)
    np.testing.assert_array_equal(copy, INPUTS[0])


def test_seeds_of_groups():
    """A seed for each group of replicas, the same on its members; by default one each."""
    ir = popxl.Ir(replication=4)
    with ir.main_graph:
        variable, seed = addons.seed_variable(1984, ir.replica_grouping(group_size=2))
        _, own = addons.seed_variable(7)
        streams = [addons.host_store(t) for t in (seed, own)]
    with popxl.Session(ir, "ipu_hw") as session:
        outputs = session.run()
        values = session.get_tensor_data(variable)
    pairs = outputs[streams[0]].reshape(2, 2, 2)
    np.testing.assert_array_equal(pairs[:, 0], pairs[:, 1])
    np.testing.assert_array_equal(values, pairs[:, 0])
    assert len({tuple(row) for row in outputs[streams[1]].tolist()}) == 4


def test_groups_within_instances_and_link_domains(monkeypatch):
    """Groups are restricted to the replicas of one process or one domain of links."""
    monkeypatch.setenv("POPLAR_TARGET_OPTIONS", '{"ipuLinkDomainSize": "4"}')
    ir = popxl.Ir(replication=8)
    with ir.main_graph:
        whole, pairs = ir.replica_grouping(), ir.replica_grouping(group_size=2)
        assert get_instance_replica_grouping(pairs) == pairs
        assert is_cross_ild(whole)
        assert get_ild_replica_grouping() == ir.replica_grouping(group_size=4)
        assert get_ild_replica_grouping(ir.replica_grouping(stride=2)).group_size == 2
        assert fill_none_group(None, pairs) == fill_none_group(pairs, whole) == pairs
        groups = NamedReplicaGrouping.build_groups(["a.b", "c"], pairs)
        assert groups.a.b == groups.c == pairs

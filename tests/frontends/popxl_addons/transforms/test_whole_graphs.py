"""Changes of whole graphs: repeated, memory of products set, and phases of remote variables."""

from functools import partial

import numpy as np
import pytest

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons import (
    NamedTensors,
    all_gather_replica_sharded_graph,
    load_remote_graph,
    named_variable_buffers,
    reduce_replica_sharded_graph,
    store_remote_graph,
)
from popxl_addons.transforms.repeat_graph import repeat_graph
from popxl_addons.transforms.use_fc_pass import disable_fc_pass, enable_fc_pass


@pytest.mark.parametrize("count", [1, 5])
def test_the_main_graph_repeated(count):
    """All operations run in a loop; variables keep what rounds do, streams give each round's."""
    ir = popxl.Ir()
    ir.num_host_transfers = count
    with ir.main_graph, popxl.in_sequence():
        x = popxl.variable(np.array(0, np.float32))
        ops.var_updates.accumulate_(x, popxl.constant(1, popxl.float32))
        stream = addons.host_store(x * 2)
    body = repeat_graph(ir.main_graph, count)
    assert (body is ir.main_graph) == (count == 1)
    with popxl.Session(ir, "ipu_hw") as session:
        result = session.run()[stream]
        assert session.get_tensor_data(x) == count
    np.testing.assert_array_equal(result.ravel(), 2 * np.arange(1, count + 1))


def test_memory_of_products_is_set_by_ipu():
    """Products of all graphs, or of one graph and those it calls, take their IPU's share."""
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.ones((2, 2), np.float32))
        graph = ir.create_graph(lambda t: t @ t, x)
        with popxl.ipu(0):
            (y,) = ops.call(graph, x)
        with popxl.ipu(1):
            _ = y.copy_to_ipu(1) @ popxl.variable(np.ones((2, 2), np.float32))
    (inner,), outer = graph.ops, [op for op in ir.main_graph.ops if op.kind == "MatMul"]
    addons.set_available_memory_proportion_by_ipu(ir, (0.1, 0.2))
    assert inner.attributes["available_memory_proportion"] == 0.1
    assert [op.attributes["available_memory_proportion"] for op in outer] == [0.2]
    addons.set_graph_available_memory_proportion_by_ipu(ir.main_graph, [0.4])
    assert inner.attributes["available_memory_proportion"] == 0.4
    with pytest.raises(ValueError, match="between 0 and 1"):
        addons.set_available_memory_proportion_by_ipu(ir, [2])
    with pytest.raises(ValueError, match="level must be one of"):
        addons.apply_pre_alias_patterns(ir, "some")
    disable_fc_pass(ir)
    enable_fc_pass(ir)


class Adds(addons.Module):
    """Adds its input to a variable."""

    def build(self, x):
        w = self.add_variable_input("weight", partial(np.ones, x.shape), x.dtype, by_ref=True)
        ops.scaled_add_(w, x)


@pytest.mark.parametrize(("replicas", "shard_over"), [(1, True), (4, True), (4, 2), (4, False)])
def test_phases_of_remote_variables(replicas, shard_over):
    """Load, gather, compute, scatter, store: two variables of a buffer, sharded or whole."""
    ir = popxl.Ir(replication=replicas)
    x = np.arange(8, dtype=np.float32)
    with ir.main_graph, popxl.in_sequence():
        t = popxl.constant(x)
        factories, graph = Adds().create_graph(t)
        buffers = named_variable_buffers(factories, 2, shard_over)
        size = {True: replicas, False: 1}.get(shard_over, shard_over)
        assert buffers.weight.tensor_shape == (8 // size,) if size > 1 else (8,)
        groups = addons.NamedReplicaGrouping(weight=ir.replica_grouping(group_size=size))
        load, names = load_remote_graph(buffers)
        shards = NamedTensors.pack(names, load.graph.outputs)
        gather, _ = all_gather_replica_sharded_graph(shards, replica_groups=groups)
        whole = NamedTensors.pack(names, gather.graph.outputs)
        scatter, _ = reduce_replica_sharded_graph(whole, "mean", shard_groups=groups)
        store = store_remote_graph(buffers)
        made = [factories.init_remote(buffers, i, f"layer{i}") for i in range(2)]
        for i in range(2):
            weights = NamedTensors.pack(names, load.call(i))
            weights = NamedTensors.pack(names, gather.bind(weights).call())
            for _ in range(i + 1):
                graph.bind(weights).call(t)
            weights = NamedTensors.pack(names, scatter.bind(weights).call())
            store.bind(weights).call(i)
    with popxl.Session(ir, "ipu_hw") as session:
        session.run()
        for i, layer in enumerate(made):
            np.testing.assert_allclose(session.get_tensor_data(layer.weight), 1 + (i + 1) * x)


def test_buffers_that_do_not_divide():
    """A variable that cannot be sharded is an error that says how to keep it whole."""
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        factories, _ = Adds().create_graph(popxl.TensorSpec((3,), popxl.float32))
        with pytest.raises(ValueError, match="shard_over=1"):
            named_variable_buffers(factories)
        with pytest.raises(ValueError, match="1 to 2 of them"):
            named_variable_buffers(factories, shard_over_dict=3)
        with pytest.raises(ValueError, match="dictionary, an integer or a boolean"):
            named_variable_buffers(factories, shard_over_dict="all")
        assert named_variable_buffers(factories, shard_over_dict={"weight": 1}).weight

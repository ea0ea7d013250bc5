"""The sharded cross entropy, ignored labels included, against PyTorch; host arrays of groups."""

import numpy as np
import pytest
import torch

import popxl
from popxl import ops
from popxl_addons.array_munging import shard, shard2D, tensor_parallel_input
from popxl_addons.ops.cross_entropy_sharded_loss import cross_entropy_sharded_loss


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ignored_labels_do_not_count(reduction):
    """Each replica has half of the classes; label 2 is ignored wherever it is."""
    logits = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    labels = np.array([0, 2, 5, 3, 2], np.int32)
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        group = ir.replica_grouping()
        each = ir.replica_grouping(group_size=1)
        own = popxl.variable(shard(logits, 2, 1), replica_grouping=each)
        first = popxl.variable(np.array([0, 3], np.int32), replica_grouping=each)
        indices = popxl.variable(labels) - first
        ignored = popxl.constant(2, popxl.int32) - first
        loss = cross_entropy_sharded_loss(own, indices, ignored, group, reduction)
        stream = popxl.d2h_stream(loss.shape, loss.dtype)
        ops.host_store(stream, loss)
    with popxl.Session(ir, "cpu") as session:
        result = session.run()[stream]
    expected = torch.nn.functional.cross_entropy(
        torch.from_numpy(logits), torch.from_numpy(labels).long(), ignore_index=2,
        reduction=reduction,
    )  # fmt: skip
    for row in result:
        np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-6)


def test_arrays_for_groups():
    """Parts along one axis and two, and samples for groups of tensor parallel replicas."""
    x = np.arange(24).reshape(4, 6)
    np.testing.assert_array_equal(shard(x, 2, 1)[1], x[:, 3:])
    np.testing.assert_array_equal(shard2D(x, 2, 3, 0, 1)[4], x[2:, 2:4])
    np.testing.assert_array_equal(
        tensor_parallel_input(np.arange(4), 2, 4), [[0, 0, 1, 1], [2, 2, 3, 3]]
    )
    with pytest.raises(ValueError, match="does not divide"):
        shard(x, 5, 0)

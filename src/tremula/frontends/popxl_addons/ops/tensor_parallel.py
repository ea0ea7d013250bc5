"""Collectives of tensor parallel layers: they say what happens to gradients.

A layer that several replicas compute together begins where all have the same tensor and each goes
on with its own part (`identical_inputs`), and ends where parts are summed
(`identical_grad_inputs`).
"""

from collections.abc import Sequence

import torch

import popxl
from popxl import ops
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.registry import OperationRow
from tremula.frontends.popxl.core.table import record
from tremula.frontends.popxl.ops.collectives import grouping_of
from tremula.frontends.popxl.replica_axis import all_reduced

Grads = list[popxl.Tensor | None]
KIND = "ReplicatedAllReduceTP"
SUM, NOTHING = "add", "none"


def replicated_all_reduce_identical_inputs(
    t: popxl.Tensor, op: str = "add", group: popxl.ReplicaGrouping | None = None
) -> popxl.Tensor:
    """The tensor itself; its gradient is summed over the group, which has parts of it.

    For a tensor that is the same on all replicas of the group.
    """
    return _record(t, NOTHING, op, group)


def replicated_all_reduce_identical_grad_inputs(
    t: popxl.Tensor, op: str = "add", group: popxl.ReplicaGrouping | None = None
) -> popxl.Tensor:
    """The sum over the group; its gradient, the same on all replicas of the group, passes."""
    return _record(t, op, NOTHING, group)


def replicated_all_reduce_summed_grad(
    t: popxl.Tensor, op: str = "add", group: popxl.ReplicaGrouping | None = None
) -> popxl.Tensor:
    """The sum over the group; so is its gradient, as replicas go on differently."""
    return _record(t, op, op, group)


def _record(
    t: popxl.Tensor, forward: str, backward: str, group: popxl.ReplicaGrouping | None
) -> popxl.Tensor:
    for name in (forward, backward):
        if name not in (SUM, NOTHING):
            raise ValueError(f"Tensor parallel layers reduce with 'add', got {name!r}")
    group = grouping_of(group)
    attributes = {"forward": forward, "backward": backward, "group": group, "operation": SUM}
    row = _REDUCES if forward == SUM else _PASSES
    (out,) = record(row, [t], (("t", 0),), attributes, [(t.shape, t.dtype)])
    return out


def _sums(op: Op, x: torch.Tensor) -> torch.Tensor:
    """For each replica the sum of its group's tensors."""
    return all_reduced(x, op.attributes["group"], SUM)


def _passes(t: torch.Tensor, **_attributes: object) -> torch.Tensor:
    return t.clone()


def _gradient(_making: object, op: Op, given: Grads, _wanted: Sequence[int]) -> Grads:
    (grad,) = given
    assert grad is not None, "an operation without gradients is not asked"
    a = op.attributes
    return [_record(grad, a["backward"], a["forward"], a["group"])]


_REDUCES = OperationRow(
    "replicated_all_reduce_tp", KIND, _sums, gradient=_gradient, is_collective=True
)
_PASSES = OperationRow("identity_tp", "IdentityTP", _passes, gradient=_gradient)


# -- collectives of groups with a stride: PopXL's own take any group -------------------------------


def replicated_all_reduce_strided(
    t: popxl.Tensor, op: str = "add", group: popxl.ReplicaGrouping | None = None
) -> popxl.Tensor:
    """The reduction over the group."""
    return ops.collectives.replicated_all_reduce(t, op, group)


def replicated_all_gather_strided(
    t: popxl.Tensor, axis: int = 0, group: popxl.ReplicaGrouping | None = None
) -> popxl.Tensor:
    """The tensors of the group along an axis; the whole, of a shard."""
    return ops.collectives.replicated_all_gather(t, axis, group)


def replicated_reduce_scatter_strided(
    t: popxl.Tensor,
    op: str = "add",
    group: popxl.ReplicaGrouping | None = None,
    configure_output_for_replicated_tensor_sharding: bool = False,
) -> popxl.Tensor:
    """This replica's part of the reduction over the group."""
    return ops.collectives.replicated_reduce_scatter(
        t, op, group, configure_output_for_replicated_tensor_sharding
    )

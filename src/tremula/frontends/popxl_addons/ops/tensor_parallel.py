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
from tremula.frontends.popxl_addons.graphs.graph import GraphWithNamedArgs
from tremula.frontends.popxl_addons.named.tensors import NamedTensors
from tremula.frontends.popxl_addons.utils import null_context

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


def replicated_all_reduce(
    t: popxl.Tensor, op: str = "add", group: popxl.ReplicaGrouping | None = None
) -> popxl.Tensor:
    """The sum over the group; so is its gradient, as replicas continue differently."""
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


def _gradient(_making: object, op: Op, gradients: Grads, _wanted: Sequence[int]) -> Grads:
    (grad,) = gradients
    assert grad is not None, "an operation without gradients is not asked"
    a = op.attributes
    return [_record(grad, a["backward"], a["forward"], a["group"])]


_REDUCES = OperationRow(
    "replicated_all_reduce_tp", KIND, _sums, gradient=_gradient, is_collective=True
)
_PASSES = OperationRow("identity_tp", "IdentityTP", _passes, gradient=_gradient)


# -- collectives of groups with a stride -----------------------------------------------------------


def replicated_all_reduce_strided(
    t: popxl.Tensor, op: str = "add", group: popxl.ReplicaGrouping | None = None
) -> popxl.Tensor:
    """The reduction over the group, which may be differentiated if it is a sum or a mean."""
    if op not in (SUM, "mean"):
        return ops.collectives.replicated_all_reduce(t, op, group)
    total = replicated_all_reduce(t, SUM, group)
    return total / grouping_of(group).group_size if op == "mean" else total


def replicated_all_reduce_strided_identical_inputs(
    t: popxl.Tensor, op: str = "add", group: popxl.ReplicaGrouping | None = None
) -> popxl.Tensor:
    """The tensor itself, the same on all replicas; its gradient is summed over the group."""
    return replicated_all_reduce_identical_inputs(t, op, group)


def replicated_all_reduce_strided_identical_grad_inputs(
    t: popxl.Tensor, op: str = "add", group: popxl.ReplicaGrouping | None = None
) -> popxl.Tensor:
    """The sum over the group; its gradient, the same on all replicas, passes."""
    return replicated_all_reduce_identical_grad_inputs(t, op, group)


def replicated_all_reduce_strided_graph(
    tensors: NamedTensors,
    op: str = "add",
    group: popxl.ReplicaGrouping | None = None,
    use_io_tiles: bool = False,
) -> tuple[GraphWithNamedArgs, list[str]]:
    """A graph from tensors, its named arguments, to their reductions, and the names of those.

    graph, names = replicated_all_reduce_strided_graph(tensors)
    reduced = NamedTensors.pack(names, graph.bind(tensors).call())
    """
    graph = popxl.gcg().ir.create_empty_graph("replica_reduce")
    names, like = tensors.unpack()
    tiles = popxl.io_tiles() if use_io_tiles else null_context()
    args = {}
    with graph, popxl.in_sequence(False), tiles:
        for name, t in zip(names, like, strict=True):
            args[name] = popxl.graph_input(t.shape, t.dtype, name, meta_shape=t.meta_shape)
            here = ops.io_tile_copy(args[name]) if use_io_tiles else args[name]
            popxl.graph_output(ops.collectives.replicated_all_reduce(here, op, group))
    return GraphWithNamedArgs(graph, NamedTensors.from_dict(args)), names


def replicated_all_gather_strided(
    t: popxl.Tensor, group: popxl.ReplicaGrouping | None = None
) -> popxl.Tensor:
    """The tensors of the group, one after the other along the first dimension.

    Of a shard it is the whole tensor, in its shape.
    """
    return ops.collectives.replicated_all_gather(t, 0, group)


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

"""`ops.collectives`: operations over the values of all replicas, or all chips of one.

A row's function takes the values of all replicas as one tensor, by `replica_axis`.
"""

from collections.abc import Callable, Sequence
from math import ceil, prod
from typing import Any, Literal

import torch

from tremula.frontends.popart.groups import CommGroup
from tremula.frontends.popxl.core.context import gir
from tremula.frontends.popxl.core.ir import Ir
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.registry import OperationRow, public
from tremula.frontends.popxl.core.table import Operands, operation, record
from tremula.frontends.popxl.core.tensor import Tensor
from tremula.frontends.popxl.replica_axis import (
    REDUCTIONS,
    all_gathered,
    all_reduced,
    gathered_whole,
    own_shards,
    own_slices,
    reduce_scattered,
)
from tremula.frontends.popxl.replica_grouping import ReplicaGrouping

PAGE_SECTION = (12, "Collectives (`ops.collectives`)")

Group = ReplicaGrouping | CommGroup | None

_SPELLINGS = {"logical_and": "and", "logical_or": "or"}


def _checked(op: str, *, with_local: bool = False) -> str:
    name = _SPELLINGS.get(op, op)
    if name not in REDUCTIONS and not (with_local and name == "local"):
        known = [*REDUCTIONS, *(["local"] if with_local else [])]
        raise ValueError(f"Not a valid op: {op!r}. Must choose from {', '.join(known)}")
    return name


def grouping_of(group: Group) -> ReplicaGrouping:
    """A partition that collectives can use: all replicas by default."""
    ir = gir()
    if group is None:
        return ir.replica_grouping()
    if isinstance(group, CommGroup):
        return _of_comm_group(ir, group)
    if group.num_replicas != ir.replication_factor:
        raise ValueError(
            f"The grouping has {group.num_replicas} replicas, the Ir {ir.replication_factor}"
        )
    if not group.is_const:
        raise ValueError(
            f"{group!r} does not have a constant stride, so collectives cannot use it:"
            " use its const_rg, or several collectives"
        )
    return group


def _of_comm_group(ir: Ir, group: CommGroup) -> ReplicaGrouping:
    groups = group.replica_group(ir.replication_factor)
    return ir.replica_grouping(groups.stride, groups.size)


def _dimension(t: Tensor, axis: int, rank: int) -> int:
    """The number of a dimension from 0 on, of a result with this many."""
    if not -rank <= axis < rank:
        raise ValueError(f"axis must be from {-rank} to {rank - 1} for {t!r}, got {axis}")
    return axis % rank


def _collective(
    row: OperationRow,
    t: Tensor,
    group: ReplicaGrouping,
    shape: tuple[int, ...],
    **attributes: object,
) -> Tensor:
    attributes["group"] = group
    attributes.setdefault("meta_shape", ())
    (out,) = record(row, [t], (("t", 0),), attributes, [(shape, t.dtype)])
    return out


def _row(name: str, kind: str, **properties: Any) -> Callable[[Callable], OperationRow]:
    def make(compute: Callable) -> OperationRow:
        return OperationRow(name, kind, compute, is_collective=True, **properties)

    return make


# -- all-reduce ------------------------------------------------------------------------------------


@_row("replicated_all_reduce", "ReplicatedAllReduce")
def ALL_REDUCE(op: Op, x: torch.Tensor) -> torch.Tensor:
    return all_reduced(x, op.attributes["group"], op.attributes["op"])


@_row("replicated_all_reduce_", "ReplicatedAllReduceInplace", modifies=(0,))
def ALL_REDUCE_(op: Op, x: torch.Tensor) -> torch.Tensor:
    return all_reduced(x, op.attributes["group"], op.attributes["op"])


@public
def replicated_all_reduce(t: Tensor, op: str = "add", group: Group = None) -> Tensor:
    """The values of all replicas of a group, combined, on each of them."""
    return _collective(
        ALL_REDUCE, t, grouping_of(group), t.shape, op=_checked(op), meta_shape=t.meta_shape
    )


@public
def replicated_all_reduce_(t: Tensor, op: str = "add", group: Group = None) -> Tensor:
    """Replace a tensor by the values of all replicas of a group, combined."""
    return _collective(
        ALL_REDUCE_, t, grouping_of(group), t.shape, op=_checked(op), meta_shape=t.meta_shape
    )


# -- gather and scatter ----------------------------------------------------------------------------

OutputShape = Literal["auto", "new_axis", "concat", "meta_shape"]


def _gather_gradient(
    _ctx: object, op: Op, gradients: list[Tensor | None], _wanted: tuple[int, ...]
) -> list[Tensor]:
    """Each replica's own part of the gradient; nothing is summed over replicas."""
    (grad,), (t,), a = gradients, op.inputs, op.attributes
    assert grad is not None, "a gather without a gradient is not visited"
    if a["form"] == "meta_shape":
        result = replica_sharded_slice(grad, a["group"])
    elif a["form"] == "concat":
        result = replicated_slice(grad, a["axis"], a["group"])
    else:
        result = replicated_slice(grad, a["axis"], a["group"])
    return [result if result.shape == t.shape else result.reshape(t.shape)]


@_row("replicated_all_gather", "ReplicatedAllGather", gradient=_gather_gradient)
def ALL_GATHER(op: Op, x: torch.Tensor) -> torch.Tensor:
    a = op.attributes
    if a["form"] == "meta_shape":
        return gathered_whole(x, a["group"], op.outputs[0].shape)
    return all_gathered(x, a["group"], a["axis"], new_axis=a["form"] == "new_axis")


@public
def replicated_all_gather(
    t: Tensor, axis: int = 0, group: Group = None, output_shape: OutputShape = "auto"
) -> Tensor:
    """The values of all replicas of a group, one behind the other, on each of them."""
    grouping = grouping_of(group)
    n, form = grouping.group_size, output_shape
    if form not in {"auto", "new_axis", "concat", "meta_shape"}:
        raise ValueError(
            f"output_shape must be 'auto', 'new_axis', 'concat' or 'meta_shape', got {form!r}"
        )
    if form == "auto":
        form = "meta_shape" if t.meta_shape else "concat"
    if form == "meta_shape":
        if not t.meta_shape:
            raise ValueError(f"{t!r} is not a shard: it has no meta_shape to be gathered to")
        shape = t.meta_shape
    elif form == "new_axis":
        axis = _dimension(t, axis, t.rank + 1)
        shape = (*t.shape[:axis], n, *t.shape[axis:])
    else:
        whole = t.shape or (1,)
        axis = _dimension(t, axis, len(whole))
        shape = (*whole[:axis], whole[axis] * n, *whole[axis + 1 :])
        form = "new_axis" if not t.shape else form
    return _collective(ALL_GATHER, t, grouping, shape, axis=axis, form=form)


@_row("replicated_reduce_scatter", "ReplicatedReduceScatter")
def REDUCE_SCATTER(op: Op, x: torch.Tensor) -> torch.Tensor:
    group, name = op.attributes["group"], op.attributes["op"]
    return own_shards(x, group) if name == "local" else reduce_scattered(x, group, name)


@public
def replicated_reduce_scatter(
    t: Tensor,
    op: str = "add",
    group: Group = None,
    configure_output_for_replicated_tensor_sharding: bool = False,
) -> Tensor:
    """The values of a group, combined; each replica gets its part of the flat result."""
    grouping = grouping_of(group)
    shape = (ceil(prod(t.shape) / grouping.group_size),)
    is_shard = configure_output_for_replicated_tensor_sharding
    return _collective(
        REDUCE_SCATTER, t, grouping, shape,
        op=_checked(op, with_local=True), meta_shape=t.shape if is_shard else (),
    )  # fmt: skip


def _sharded_slice_gradient(
    _ctx: object, op: Op, gradients: list[Tensor | None], _wanted: tuple[int, ...]
) -> list[Tensor]:
    (grad,), (t,) = gradients, op.inputs
    assert grad is not None, "a slice without a gradient is not visited"
    whole = _collective(
        ALL_GATHER, grad, op.attributes["group"], t.shape, axis=0, form="meta_shape"
    )
    return [whole]


SHARDED_SLICE = OperationRow(
    "replica_sharded_slice", "ReplicatedReduceScatter", REDUCE_SCATTER.compute,
    is_collective=True, gradient=_sharded_slice_gradient,
)  # fmt: skip


@public
def replica_sharded_slice(t: Tensor, group: Group = None) -> Tensor:
    """Each replica's part of its flat tensor; its `meta_shape` is the whole shape."""
    grouping = grouping_of(group)
    shape = (ceil(prod(t.shape) / grouping.group_size),)
    return _collective(SHARDED_SLICE, t, grouping, shape, op="local", meta_shape=t.shape)


def _slice_gradient(
    _ctx: object, op: Op, gradients: list[Tensor | None], _wanted: tuple[int, ...]
) -> list[Tensor]:
    (grad,), (t,), a = gradients, op.inputs, op.attributes
    assert grad is not None, "a slice without a gradient is not visited"
    form = "new_axis" if grad.rank < t.rank else "concat"
    return [replicated_all_gather(grad, a["axis"], a["group"], form)]


@_row("replicated_slice", "ReplicatedReduceScatter", gradient=_slice_gradient)
def SLICE(op: Op, x: torch.Tensor) -> torch.Tensor:
    a = op.attributes
    return own_slices(x, a["group"], a["axis"]).reshape((len(x), *op.outputs[0].shape))


@public
def replicated_slice(t: Tensor, axis: int = 0, group: Group = None) -> Tensor:
    """Each replica's part of its tensor along a dimension, which is dropped if the part is one."""
    grouping = grouping_of(group)
    axis, n = _dimension(t, axis, max(t.rank, 1)), grouping.group_size
    if not t.rank or t.shape[axis] % n:
        raise ValueError(
            f"Dimension {axis} of {t!r} does not divide into {n} equal parts, one for each replica"
        )
    part = t.shape[axis] // n
    remaining = (part,) if part > 1 else ()
    shape = (*t.shape[:axis], *remaining, *t.shape[axis + 1 :])
    return _collective(SLICE, t, grouping, shape, axis=axis)


# -- between the chips of a replica ----------------------------------------------------------------


def _gradients_reduced(
    _ctx: object, op: Op, gradients: list[Tensor | None], wanted: tuple[int, ...]
) -> list[Tensor]:
    from_all = [g for g in gradients if g is not None]
    made = all_reduce(from_all, op.attributes["ipus"], op.attributes["op"])
    return [made[min(i, len(made) - 1)] for i in wanted]


def _gradients_as_they_are(
    _ctx: object, _op: Op, gradients: list[Tensor | None], wanted: tuple[int, ...]
) -> list[Tensor | None]:
    return [gradients[i] for i in wanted]


@operation("AllReduce", name="_all_reduce", gradient=_gradients_reduced)
def _all_reduce(ts: Operands, ipus: Sequence[int], op: str) -> list[torch.Tensor]:  # noqa: ARG001
    whole = REDUCTIONS[op](ts)
    return [whole.clone() for _ in ts]


@operation("AllReduce", name="_identical_inputs", gradient=_gradients_reduced)
def _identical_inputs(ts: Operands, ipus: Sequence[int], op: str) -> list[torch.Tensor]:  # noqa: ARG001
    return [t.clone() for t in ts]


@operation("AllReduce", name="_identical_grad_inputs", gradient=_gradients_as_they_are)
def _identical_grad_inputs(ts: Operands, ipus: Sequence[int], op: str) -> list[torch.Tensor]:  # noqa: ARG001
    whole = REDUCTIONS[op](ts)
    return [whole.clone() for _ in ts]


def _chips(ts: Sequence[Tensor], ipus: Sequence[int] | None) -> tuple[int, ...]:
    result = [t.ipu for t in ts] if ipus is None else list(ipus)
    if len(result) != len(ts):
        raise ValueError(f"{len(ts)} tensors, but {len(result)} chips: {result}")
    if len(set(result)) != len(result):
        raise ValueError(f"Each tensor must be on a separate chip, got chips {result}")
    return tuple(result)


@public
def all_reduce(
    ts: Sequence[Tensor], ipus: Sequence[int] | None = None, op: str = "add"
) -> list[Tensor]:
    """Tensors of several chips of a replica, combined, on each of them."""
    return _all_reduce(list(ts), _chips(ts, ipus), _checked(op))


@public
def all_reduce_identical_inputs(
    ts: Sequence[Tensor], ipus: Sequence[int] | None = None, op: str = "add"
) -> list[Tensor]:
    """Tensors that are equal on all chips, as they are; their gradients are combined."""
    return _identical_inputs(list(ts), _chips(ts, ipus), _checked(op))


@public
def all_reduce_identical_grad_inputs(
    ts: Sequence[Tensor], ipus: Sequence[int] | None = None, op: str = "add"
) -> list[Tensor]:
    """Tensors of several chips, combined; their gradients are equal, and stay as they are."""
    return _identical_grad_inputs(list(ts), _chips(ts, ipus), _checked(op))

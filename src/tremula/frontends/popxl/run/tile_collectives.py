"""Collectives as operations of a tile program, as each replica sees them: tremula::group_*."""

import torch
from torch import Tensor

import tremula.ir.ops.shards  # noqa: F401  registers tremula::group_all_reduce
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.replica_grouping import ReplicaGrouping

# What tiles reduce with; the others are made of these.
_OPERATIONS = {"add": "ADD", "square_add": "ADD", "mul": "MUL", "min": "MIN", "max": "MAX"}
_OF_BOOLEANS = {"and": "MIN", "or": "MAX"}
_SENT = (torch.float32, torch.float16, torch.int32)  # types that collectives of tiles combine


def on_tiles(op: Op, x: Tensor) -> Tensor:
    """The result of a collective on this replica, given its own operand."""
    a, group, out = op.attributes, op.attributes["group"], op.outputs[0]
    if group.group_size == 1 and x.shape == out.shape and a.get("op") != "square_add":
        return x.clone()
    name = a.get("op") or a.get("operation", "")
    if op.kind == "ReplicatedAllGather":
        return _gathered(x, group, a["form"], a["axis"], out.shape)
    if "axis" in a:
        return _slice(x, group, a["axis"]).reshape(out.shape)
    if op.kind != "ReplicatedReduceScatter":
        return _reduced(x, group, name, "all_reduce").reshape(out.shape)
    if name == "local":
        return _shard(x, group)
    return _reduced(x, group, name, "reduce_scatter")


def _reduced(x: Tensor, group: ReplicaGrouping, name: str, what: str) -> Tensor:
    collective = getattr(torch.ops.tremula, f"group_{what}")
    sent = x if x.dtype in _SENT else x.to(torch.int32)
    if name in _OF_BOOLEANS:
        sent = (x != 0).to(torch.int32)
    if name == "square_add":
        sent = sent * sent
    if name == "mean" and sent.is_floating_point():
        return collective(sent, "MEAN", group.group_size, group.stride)
    operation = "ADD" if name == "mean" else {**_OPERATIONS, **_OF_BOOLEANS}[name]
    result = collective(sent, operation, group.group_size, group.stride)
    return (result / group.group_size if name == "mean" else result).to(x.dtype)


def _gathered(
    x: Tensor, group: ReplicaGrouping, form: str, axis: int, shape: tuple[int, ...]
) -> Tensor:
    size, stride = group.group_size, group.stride
    if form == "meta_shape":
        return torch.ops.tremula.group_gathered(x, list(shape), size, stride)
    rows = torch.ops.tremula.group_all_gather(x, size, stride)  # [members, …]
    return rows.movedim(0, axis).reshape(shape)


def _shard(x: Tensor, group: ReplicaGrouping) -> Tensor:
    return torch.ops.tremula.group_shard(x, group.group_size, group.stride)


def _slice(x: Tensor, group: ReplicaGrouping, axis: int) -> Tensor:
    """Parts along an axis are parts of the flat tensor, once that axis is the first."""
    first = x.movedim(axis, 0)
    part = _shard(first.reshape(-1), group)
    return part.reshape(-1, *first.shape[1:]).movedim(0, axis)

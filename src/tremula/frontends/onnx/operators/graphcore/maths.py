"""Arithmetic, marks, losses, slices and sorting of ai.graphcore."""

import torch
import torch.nn.functional as F  # noqa: N812
from onnx import TensorProto
from torch import Tensor

from tremula.frontends.onnx.context import BodyGraph, NodeContext
from tremula.frontends.onnx.element_types import element_type
from tremula.frontends.onnx.errors import OnnxError, UnsupportedOnnx
from tremula.frontends.onnx.operators.shape import axes_of
from tremula.frontends.onnx.table import GRAPHCORE_DOMAIN as DOMAIN
from tremula.frontends.onnx.table import operator
from tremula.frontends.shared.kinds import elementwise, indexing, losses, reductions
from tremula.ir.ops import composite, markers  # noqa: F401 - register tremula::*

_ops = torch.ops.tremula


# -- element by element ----------------------------------------------------------------------------


@operator("Gelu", domain=DOMAIN, in_place=True, role="activation")
def gelu(x: Tensor) -> Tensor:
    """The product x Φ(x), with the tanh that approximates it."""
    return elementwise.gelu(x)


@operator("GeluErf", domain=DOMAIN)
def gelu_erf(x: Tensor) -> Tensor:
    """The product x Φ(x)."""
    return elementwise.gelu_erf(x)


@operator("Swish", domain=DOMAIN)
def swish(x: Tensor) -> Tensor:
    """The product x σ(x)."""
    return elementwise.swish(x)


@operator("Scale", domain=DOMAIN, in_place=True)
def scale(x: Tensor, *, scale: float) -> Tensor:
    """A multiple, of the same type."""
    return (x * scale).to(x.dtype)


@operator("ScaledAdd", domain=DOMAIN)
def scaled_add(
    a: Tensor,
    b: Tensor,
    factor_a: Tensor | None = None,
    factor_b: Tensor | None = None,
    *,
    scale0: float = 1.0,
    scale1: float = 1.0,
) -> Tensor:
    """A sum of multiples; factors are attributes or operands."""
    left = scale0 if factor_a is None else factor_a
    right = scale1 if factor_b is None else factor_b
    return elementwise.scaled_add(a, b, left, right)


@operator("Round", domain=DOMAIN)
def round_away(x: Tensor) -> Tensor:
    """To the nearest whole number; halves away from 0."""
    return torch.sign(x) * torch.floor(torch.abs(x) + 0.5)


@operator("NearbyInt", domain=DOMAIN)
def nearby_int(x: Tensor) -> Tensor:
    """To the nearest whole number; halves to the even one."""
    return torch.round(x)


@operator("Expm1", domain=DOMAIN)
def expm1(x: Tensor) -> Tensor:
    """exp(x) - 1."""
    return torch.expm1(x)


@operator("Log1p", domain=DOMAIN)
def log1p(x: Tensor) -> Tensor:
    """log(1 + x)."""
    return torch.log1p(x)


@operator("Atan2", domain=DOMAIN)
def atan2(y: Tensor, x: Tensor) -> Tensor:
    """The angle of (x, y)."""
    return torch.atan2(y, x)


@operator("Fmod", domain=DOMAIN)
def fmod(a: Tensor, b: Tensor) -> Tensor:
    """The remainder with the sign of the dividend."""
    return torch.fmod(a, b)


@operator("Remainder", domain=DOMAIN)
def remainder(a: Tensor, b: Tensor) -> Tensor:
    """The remainder with the sign of the divisor."""
    return torch.remainder(a, b)


@operator("BitwiseAnd", domain=DOMAIN)
def bitwise_and(a: Tensor, b: Tensor) -> Tensor:
    """Bits that both have."""
    return torch.bitwise_and(a, b)


@operator("BitwiseOr", domain=DOMAIN)
def bitwise_or(a: Tensor, b: Tensor) -> Tensor:
    """Bits that either has."""
    return torch.bitwise_or(a, b)


@operator("BitwiseXor", domain=DOMAIN)
def bitwise_xor(a: Tensor, b: Tensor) -> Tensor:
    """Bits that one of them has."""
    return torch.bitwise_xor(a, b)


@operator("BitwiseXnor", domain=DOMAIN)
def bitwise_xnor(a: Tensor, b: Tensor) -> Tensor:
    """Bits in which they agree."""
    return torch.bitwise_not(torch.bitwise_xor(a, b))


@operator("BitwiseNot", domain=DOMAIN)
def bitwise_not(x: Tensor) -> Tensor:
    """All bits inverted."""
    return torch.bitwise_not(x)


@operator("IncrementMod", domain=DOMAIN)
def increment_mod(x: Tensor, *, increment: float, modulus: float) -> Tensor:
    """(x + increment) mod modulus."""
    return elementwise.increment_mod(x, increment, modulus)


@operator("Bucketize", domain=DOMAIN)
def bucketize(x: Tensor, boundaries: Tensor, *, right: int = 0) -> Tensor:
    """The number of the bucket that each value falls into."""
    result = x.unsqueeze(-1) >= boundaries if right else x.unsqueeze(-1) > boundaries
    return result.sum(-1).to(torch.int32)


# -- marks -----------------------------------------------------------------------------------------


@operator("Nop", domain=DOMAIN, folds=False)
def nop(x: Tensor) -> Tensor:
    """The value itself, in an operation that stays in the program."""
    return _ops.nop(x)


@operator("TensorRemap", domain=DOMAIN)
def tensor_remap(x: Tensor, *, remap_type: int = 0) -> Tensor:
    """The value itself, with another layout."""
    del remap_type
    return x.clone()


@operator("Detach", domain=DOMAIN)
def detach(x: Tensor) -> Tensor:
    """The value itself, for which the loss has no gradient."""
    return x.detach()


@operator("PrintTensor", domain=DOMAIN, folds=False)
def print_tensor(x: Tensor, *, print_gradient: int = 1, title: str = "") -> Tensor:
    """The value itself, printed when the program runs."""
    return _ops.print_tensor(x, title, "", bool(print_gradient))


@operator("CopyVarUpdate", domain=DOMAIN, folds=False)
def copy_var_update(_variable: Tensor, value: Tensor) -> Tensor:
    """The new value of a weight, which a session stores."""
    return value.clone()


@operator("ReplicatedAllReduce", domain=DOMAIN)
@operator("ReplicatedReduceScatter", domain=DOMAIN, outline=lambda _x, **_attributes: None)
def replicated_reduce(
    x: Tensor, *, collectiveOperator: int | None = None, commGroup: list[int] | None = None
) -> Tensor:
    """The value itself: that of all replicas where there is one."""
    del collectiveOperator, commGroup
    return x


@operator("Call", domain=DOMAIN)
def call(*operands: Tensor, callee: BodyGraph, context: NodeContext) -> tuple[Tensor, ...]:
    """A graph, with operands as its inputs."""
    return tuple(context.run_body(callee, list(operands)))


# -- losses ----------------------------------------------------------------------------------------


_REDUCTIONS = {"Mean": "mean", "Sum": "sum", "NoReduction": "none"}


def _reduction(name: str) -> str:
    if name not in _REDUCTIONS:
        raise OnnxError(f"The reduction is Sum, Mean or NoReduction, got {name!r}.")
    return _REDUCTIONS[name]


@operator("L1", domain=DOMAIN, method="l1loss")
def l1_loss(x: Tensor, *, lambda_: float, reduction: str = "Mean") -> Tensor:
    """λ Σ|x|, or its mean."""
    return losses.reduced_loss(x.abs() * lambda_, _reduction(reduction))


@operator("IdentityLoss", domain=DOMAIN)
def identity_loss(x: Tensor, *, reduction: str = "Mean") -> Tensor:
    """A tensor as the loss."""
    return losses.reduced_loss(x, _reduction(reduction))


def _nll_outline(
    probabilities: Tensor, labels: Tensor, *, reduction: str = "Mean", **_attributes: int
) -> Tensor:
    """Sessions check that labels fit."""
    return probabilities.new_empty(labels.shape if reduction == "NoReduction" else ())


@operator("Nll", domain=DOMAIN, method="nllloss", outline=_nll_outline)
def nll_loss(
    probabilities: Tensor,
    labels: Tensor,
    *,
    reduction: str = "Mean",
    ignoreIndex: int | None = None,
    inputIsLogProbability: int = 0,
) -> Tensor:
    """Minus the log-probability of labels, over those that are not ignored."""
    return losses.nll_loss(
        probabilities,
        labels,
        ignoreIndex,
        _reduction(reduction),
        are_logs=bool(inputIsLogProbability),
    )


def _ctc_outline(
    logs: Tensor,
    *_others: Tensor,
    reduction: str = "Mean",
    outDataType: str = "UNDEFINED",
    **_attributes: int,
) -> Tensor:
    """PyTorch's loss reads the values of the lengths."""
    shape = logs.shape[1:2] if reduction == "NoReduction" else ()
    number = TensorProto.DataType.Value(outDataType)
    dtype = element_type(number).tensor_type if number else logs.dtype
    return logs.new_empty(shape, dtype=dtype)


@operator("Ctc", domain=DOMAIN, method="ctcloss", outline=_ctc_outline)
def ctc_loss(
    logs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    *,
    reduction: str = "Mean",
    blank: int = 0,
    outDataType: str = "UNDEFINED",
    zeroInfinity: int = 0,
) -> Tensor:
    """Connectionist temporal classification of log-probabilities [T, N, C]."""
    lengths = input_lengths.to(torch.int64), target_lengths.to(torch.int64)
    labels = targets.to(torch.int64)
    loss = F.ctc_loss(logs, labels, *lengths, blank, _reduction(reduction), bool(zeroInfinity))
    number = TensorProto.DataType.Value(outDataType)
    return loss.to(element_type(number).tensor_type) if number else loss


# -- shapes and slices -----------------------------------------------------------------------------


@operator("Reshape", domain=DOMAIN, in_place=True)
def reshape(x: Tensor, *, shape: list[int]) -> Tensor:
    """Elements in another shape."""
    return x.reshape([x.shape[i] if n == 0 else n for i, n in enumerate(shape)])


@operator("Reverse", domain=DOMAIN)
def reverse(x: Tensor, *, dimensions: list[int]) -> Tensor:
    """Reversed in some dimensions."""
    return torch.flip(x, dimensions)


@operator("Slice", domain=DOMAIN, in_place=True)
def slice_constant(
    x: Tensor, *, ends: list[int], starts: list[int], axes: list[int] | None = None
) -> Tensor:
    """A part between constant positions."""
    for axis, start, end in zip(axes or range(len(starts)), starts, ends, strict=True):
        begin, stop, _ = slice(start, end).indices(x.shape[axis])
        x = x.narrow(axis, begin, max(stop - begin, 0))
    return x


@operator("Subsample", domain=DOMAIN)
def subsample(x: Tensor, *, strides: list[int]) -> Tensor:
    """Every n-th element of each dimension."""
    return x[tuple(slice(None, None, stride) for stride in strides)]


@operator("DepthToSpace", domain=DOMAIN)
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Channels become blocks of pixels."""
    n, c, h, w = x.shape
    b = blocksize
    if mode == "CRD":
        x = x.reshape(n, c // b**2, b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    else:
        x = x.reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return x.reshape(n, c // b**2, h * b, w * b)


@operator("Init", domain=DOMAIN)
def init(
    *,
    shape: list[int],
    data_type: int,
    init_type: int,
    batch_axis: int | None = None,
) -> Tensor:
    """A new tensor of zeros."""
    del init_type, batch_axis
    return torch.zeros(shape, dtype=element_type(data_type).tensor_type)


@operator("DynamicSlice", domain=DOMAIN)
def dynamic_slice(
    x: Tensor,
    index: Tensor,
    _into: Tensor | None = None,
    *,
    axes: list[int],
    sizes: list[int],
    noOverlap: int = 0,
) -> Tensor:
    """A part whose position the program computes."""
    del noOverlap
    return indexing.dynamic_slice(x, index, axes, sizes)


@operator("DynamicUpdate", domain=DOMAIN)
def dynamic_update(
    x: Tensor,
    index: Tensor,
    value: Tensor,
    *,
    axes: list[int],
    sizes: list[int],
    noOverlap: int = 0,
) -> Tensor:
    """Another value for a part whose position the program computes."""
    del noOverlap
    return indexing.dynamic_update(x, index, value, axes, sizes)


@operator("DynamicZero", domain=DOMAIN)
def dynamic_zero(x: Tensor, index: Tensor, *, axes: list[int], sizes: list[int]) -> Tensor:
    """Zeros for a part whose position the program computes."""
    part = indexing.dynamic_slice(x, index, axes, sizes)
    return indexing.dynamic_update(x, index, torch.zeros_like(part), axes, sizes)


@operator("DynamicAdd", domain=DOMAIN)
def dynamic_add(
    x: Tensor, index: Tensor, value: Tensor, *, axes: list[int], sizes: list[int]
) -> Tensor:
    """A value added to a part whose position the program computes."""
    part = indexing.dynamic_slice(x, index, axes, sizes)
    return indexing.dynamic_update(x, index, part + value, axes, sizes)


@operator("SequenceSlice", domain=DOMAIN)
def sequence_slice(
    source: Tensor,
    into: Tensor,
    counts: Tensor,
    starts: Tensor,
    places: Tensor,
    *,
    zeroUnused: int = 0,
) -> Tensor:
    """Runs of rows copied from one tensor into another: how many, from where, to where."""
    return indexing.sequence_slice(source, into, counts, starts, places, bool(zeroUnused))


# -- sorting and scattering ------------------------------------------------------------------------


@operator("Sort", domain=DOMAIN)
def sort(
    x: Tensor, *, axis: int = -1, descending: int = 0, stable: int = 0
) -> tuple[Tensor, Tensor]:
    """In order, and where each element was."""
    values, places = torch.sort(x, dim=axis, descending=bool(descending), stable=bool(stable))
    return values, places.to(torch.int32)


@operator("ReduceMedian", domain=DOMAIN)
def reduce_median(
    x: Tensor, *, axes: list[int] | None = None, keepdims: int = 1
) -> tuple[Tensor, Tensor]:
    """The middle, the lower one of two, over axes together; and its place among them."""
    over = axes_of(axes, x.dim())
    values, indices = reductions.reduce_median(x, over, bool(keepdims))
    return values, indices.to(torch.int32)


@operator("ScatterReduce", domain=DOMAIN)
def scatter_reduce(
    source: Tensor,
    index: Tensor,
    initial: Tensor | None = None,
    *,
    axis_size: int,
    axis: int = -1,
    reduction: str = "sum",
    enable_index_broadcast: int = 1,
) -> Tensor:
    """Elements added up, or otherwise joined, at the indices given."""
    return indexing.scatter_reduce(
        source,
        index,
        initial,
        axis,
        axis_size,
        reduction,
        broadcasts=bool(enable_index_broadcast),
    )


@operator("GroupedScatterReduce", domain=DOMAIN)
def grouped_scatter_reduce(
    source: Tensor,
    index: Tensor,
    initial: Tensor | None = None,
    *,
    axis_size: int,
    axis: int = -1,
    reduction: str = "sum",
    group_size: int = 1,
    enable_index_broadcast: int = 1,
) -> Tensor:
    """Elements of each group, the first dimension, joined at the indices of that group."""
    axis %= source.dim()
    axis = 1 if group_size > 1 and axis == 0 else axis
    if index.dim() == 2 and source.dim() > 2:  # one index for each slice of a group
        sizes = [index.shape[0], *[1] * (source.dim() - 1)]
        sizes[axis] = index.shape[1]
        index = index.reshape(sizes)
    return scatter_reduce(
        source,
        index,
        initial,
        axis_size=axis_size,
        axis=axis,
        reduction=reduction,
        enable_index_broadcast=enable_index_broadcast,
    )


@operator("GroupedGather", domain=DOMAIN)
def grouped_gather(data: Tensor, indices: Tensor, *, axis: int = 0, group_size: int = 1) -> Tensor:
    """Rows by index, separately in each group."""
    del group_size
    axis = max(axis, 1)
    groups = [
        torch.index_select(data[g], axis - 1, indices[g].reshape(-1).to(torch.int64)).reshape(
            *data.shape[1:axis], *indices.shape[1:], *data.shape[axis + 1 :]
        )
        for g in range(data.shape[0])
    ]
    return torch.stack(groups)


@operator("Abort", domain=DOMAIN, outline=lambda *_condition: ())
def abort(_condition: Tensor | None = None) -> tuple[()]:
    """Stops the program if its operand is true; sessions of PopART look at it."""
    raise UnsupportedOnnx("Abort stops a program between operations: steps run to their end.")

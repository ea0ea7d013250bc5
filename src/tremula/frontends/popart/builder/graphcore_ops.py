"""The operators of ai.graphcore: a row each, with inputs, attributes, results and their types."""

from dataclasses import dataclass
from typing import Any

from onnx import AttributeProto

from tremula.frontends.popart.builder import graphcore_shapes as shapes
from tremula.frontends.popart.builder.signatures import (
    GRAPHCORE_DOMAIN,
    MANY,
    Attribute,
    Operator,
)
from tremula.frontends.popart.enums import (
    CollectiveOperator,
    CommGroupType,
    DataType,
    InitType,
    ReductionType,
    ScatterReduction,
)
from tremula.frontends.popart.tensor_info import onnx_type

_REQUIRED = object()
_MEAN = ReductionType.Mean


@dataclass(frozen=True)
class GraphcoreOp:
    """A row: the operator, and how types follow from types."""

    operator: Operator
    infer: shapes.Infer


def _row(
    type: str,
    n_inputs: int | tuple[int, int],
    infer: shapes.Infer,
    attributes: dict[str, Any] | None = None,
    n_outputs: int | tuple[int, int] = 1,
    name: str = "",
) -> GraphcoreOp:
    operator = Operator(
        GRAPHCORE_DOMAIN,
        type,
        (n_inputs, n_inputs) if isinstance(n_inputs, int) else n_inputs,
        (n_outputs, n_outputs) if isinstance(n_outputs, int) else n_outputs,
        tuple(_attribute(key, value) for key, value in (attributes or {}).items()),
        name=name,
    )
    return GraphcoreOp(operator, infer)


def _attribute(name: str, default: object) -> Attribute:
    is_required = default is _REQUIRED
    return Attribute(name, 0, is_required, None if is_required else default)


_SAME, _TOGETHER = shapes.like(0), shapes.broadcast
_AT_AXES = {"axes": _REQUIRED, "sizes": _REQUIRED}
_CONVOLUTIONS: dict[str, Any] = dict.fromkeys(
    "dilations inDilations pads outPads strides availableMemoryProportions partialsTypes".split(),
    (),
) | {"planType": None, "perConvReservedTiles": None, "cycleBackOff": None}
_GROUP = {"collectiveOperator": None, "commGroup": None}

OPERATORS: dict[str, GraphcoreOp] = {
    row.operator.method: row
    for row in (
        # element by element
        _row("Gelu", 1, _SAME),
        _row("GeluErf", 1, _SAME),
        _row("Swish", 1, _SAME),
        _row("Scale", 1, _SAME, {"scale": _REQUIRED}),
        _row("ScaledAdd", (2, 4), _SAME, {"scale0": 1.0, "scale1": 1.0}),
        _row("Round", 1, _SAME),
        _row("NearbyInt", 1, _SAME),
        _row("Expm1", 1, _SAME),
        _row("Log1p", 1, _SAME),
        _row("Atan2", 2, _TOGETHER),
        _row("Fmod", 2, _TOGETHER),
        _row("Remainder", 2, _TOGETHER),
        _row("BitwiseAnd", 2, _TOGETHER),
        _row("BitwiseOr", 2, _TOGETHER),
        _row("BitwiseXor", 2, _TOGETHER),
        _row("BitwiseXnor", 2, _TOGETHER),
        _row("BitwiseNot", 1, _SAME),
        _row("IncrementMod", 1, _SAME, {"increment": _REQUIRED, "modulus": _REQUIRED}),
        _row("Bucketize", 2, shapes.integers_like_input, {"right": 0}),
        # marks
        _row("Nop", 1, _SAME),
        _row("Detach", 1, _SAME),
        _row("PrintTensor", 1, _SAME, {"print_gradient": 1, "title": ""}),
        _row("TensorRemap", 1, _SAME, {"remap_type": 0}),
        _row("CopyVarUpdate", 2, _SAME),
        _row("Abort", (0, 1), shapes.nothing, n_outputs=0),
        # losses
        _row("L1", 1, shapes.loss, {"lambda": _REQUIRED, "reduction": _MEAN}, name="l1loss"),
        _row(
            "Nll",
            2,
            shapes.nll,
            {"reduction": _MEAN, "ignoreIndex": None, "inputIsLogProbability": False},
            name="nllloss",
        ),
        _row("IdentityLoss", 1, shapes.loss, {"reduction": _MEAN}),
        _row(
            "Ctc",
            4,
            shapes.ctc,
            {"reduction": _MEAN, "blank": 0, "outDataType": "UNDEFINED", "zeroInfinity": False},
            n_outputs=2,
            name="ctcloss",
        ),
        # norms and nets
        _row(
            "GroupNormalization",
            3,
            shapes.group_norm,
            {"num_groups": _REQUIRED, "epsilon": 1e-5},
            n_outputs=3,
        ),
        _row(
            "BatchNormalization",
            5,
            shapes.batch_norm,
            {"epsilon": 1e-5, "momentum": 0.9},
            n_outputs=(1, 5),
        ),
        _row(
            "NormalizeImage",
            3,
            shapes.normalised_image,
            {"scale": _REQUIRED},
            name="normalize_image",
        ),
        _row("LSTM", (2, 4), shapes.lstm, {"outputFullSequence": 1}, n_outputs=2),
        _row("MultiConv", (2, MANY), shapes.convolutions, _CONVOLUTIONS, n_outputs=(1, MANY)),
        _row("ShapedDropout", 1, _SAME, {"shape": _REQUIRED, "ratio": 0.5}),
        _row(
            "CtcBeamSearchDecoder",
            2,
            shapes.beam_search,
            {"blank": 0, "beam_width": 100, "top_paths": 1},
            n_outputs=3,
        ),
        # shapes and slices
        _row("Reshape", 1, shapes.reshaped, {"shape": _REQUIRED}),
        _row("Reverse", 1, _SAME, {"dimensions": _REQUIRED}),
        _row("Slice", 1, shapes.sliced, {"ends": _REQUIRED, "starts": _REQUIRED, "axes": ()}),
        _row("Subsample", 1, shapes.subsampled, {"strides": _REQUIRED}),
        _row("DepthToSpace", 1, shapes.depth_to_space, {"blocksize": _REQUIRED, "mode": "DCR"}),
        _row(
            "Init",
            0,
            shapes.new_tensor,
            {
                "shape": _REQUIRED,
                "data_type": _REQUIRED,
                "init_type": _REQUIRED,
                "batch_axis": None,
            },
        ),
        _row("DynamicSlice", (2, 3), shapes.with_sizes_at_axes, {**_AT_AXES, "noOverlap": 0}),
        _row("DynamicUpdate", 3, _SAME, {**_AT_AXES, "noOverlap": 0}),
        _row("DynamicZero", 2, _SAME, _AT_AXES),
        _row("DynamicAdd", 3, _SAME, _AT_AXES),
        _row("SequenceSlice", 5, shapes.like(1), {"zeroUnused": 0}),
        # sorting, scattering
        _row("Sort", 1, shapes.sort, {"axis": -1, "descending": 0, "stable": 0}, n_outputs=2),
        _row("ReduceMedian", 1, shapes.reduced, {"axes": None, "keepdims": 1}, n_outputs=2),
        _row(
            "ScatterReduce",
            (2, 3),
            shapes.scattered,
            {
                "axis_size": _REQUIRED,
                "axis": -1,
                "reduction": ScatterReduction.Sum,
                "enable_index_broadcast": 1,
            },
        ),
        _row(
            "GroupedScatterReduce",
            (2, 3),
            shapes.scattered,
            {
                "axis_size": _REQUIRED,
                "axis": -1,
                "reduction": ScatterReduction.Sum,
                "group_size": 1,
                "enable_index_broadcast": 1,
            },
        ),
        _row("GroupedGather", 2, shapes.gathered_in_groups, {"axis": 0, "group_size": 1}),
        _row(
            "SplineBasis",
            3,
            shapes.spline_basis,
            {"degree": 1},
            n_outputs=2,
        ),
        _row("SplineWeighting", 4, shapes.spline_weighting),
        # between replicas
        _row("ReplicatedAllReduce", 1, _SAME, _GROUP),
        _row("ReplicatedReduceScatter", 1, shapes.reduce_scattered, _GROUP),
    )
}


def stored_value(name: str, value: Any) -> Any:
    """A choice as the node's attribute holds it: reductions by name, types and others by number."""
    if isinstance(value, ReductionType):
        return value.name
    if isinstance(value, ScatterReduction):
        return {"NoReduction": "none"}.get(value.name, value.name.lower())
    if isinstance(value, DataType | str) and name in ("data_type", "out_type"):
        return onnx_type(value)
    if isinstance(value, CollectiveOperator | InitType | CommGroupType | bool):
        return int(value)
    if name == "outDataType" and isinstance(value, DataType):
        return value.name
    return value


FLOAT_ATTRIBUTES = frozenset(
    {"scale", "scale0", "scale1", "lambda", "epsilon", "momentum", "ratio", "increment", "modulus"}
)


def attribute_kind(name: str) -> int:
    """The kind of an attribute, where the value alone does not tell: whole numbers for floats."""
    if name in FLOAT_ATTRIBUTES:
        return int(AttributeProto.FLOAT)
    return 0

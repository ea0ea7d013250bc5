"""Small constants that follow from shapes and constants, so that shapes can follow from them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tremula.frontends.popart.builder.inference import InferredType

Arrays = Sequence[np.ndarray]
Attributes = Mapping[str, Any]


def folded(
    node: onnx.NodeProto,
    attributes: Attributes,
    types: Sequence[InferredType],
    constants: Sequence[TensorProto | None],
) -> TensorProto | None:
    """The value of a node's result if it is known when the graph is built."""
    if node.domain or not node.input:
        return None
    if node.op_type in ("Shape", "Size") and types[0].is_static:
        sizes = np.array(types[0].sizes(), np.int64)
        value = sizes if node.op_type == "Shape" else np.prod(sizes, dtype=np.int64)
        if attributes:  # a part of the shape
            value = sizes[attributes.get("start", 0) : attributes.get("end")]
        return numpy_helper.from_array(np.asarray(value))
    compute = _FOLDS.get(node.op_type)
    known = [value for value in constants if value is not None]
    if compute is None or len(known) < len(node.input):
        return None
    arrays = [numpy_helper.to_array(value) for value in known]
    if not all(np.issubdtype(array.dtype, np.integer) for array in arrays):
        return None
    return numpy_helper.from_array(np.asarray(compute(arrays, attributes)))


def _concat(arrays: Arrays, attributes: Attributes) -> np.ndarray:
    return np.concatenate(arrays, attributes["axis"])


def _gather(arrays: Arrays, attributes: Attributes) -> np.ndarray:
    return np.take(arrays[0], arrays[1], attributes.get("axis", 0))


def _axes(arrays: Arrays, attributes: Attributes) -> tuple[int, ...] | None:
    """An attribute in old op-sets, an input in new ones."""
    if "axes" in attributes:
        return tuple(attributes["axes"])
    return tuple(arrays[1].tolist()) if len(arrays) > 1 else None


def _unsqueeze(arrays: Arrays, attributes: Attributes) -> np.ndarray:
    return np.expand_dims(arrays[0], _axes(arrays, attributes) or ())


def _squeeze(arrays: Arrays, attributes: Attributes) -> np.ndarray:
    return np.squeeze(arrays[0], _axes(arrays, attributes))


def _slice(arrays: Arrays, attributes: Attributes) -> np.ndarray:
    starts = list(attributes.get("starts") or arrays[1].tolist())
    ends = list(attributes.get("ends") or arrays[2].tolist())
    input_axes = arrays[3].tolist() if len(arrays) > 3 else range(len(starts))
    axes = list(attributes.get("axes") or input_axes)
    steps = arrays[4].tolist() if len(arrays) > 4 else [1] * len(starts)
    result = arrays[0]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index: list[Any] = [slice(None)] * result.ndim
        index[axis] = slice(start, end if abs(end) < 2**31 else None, step)
        result = result[tuple(index)]
    return result


def _cast(arrays: Arrays, attributes: Attributes) -> np.ndarray:
    return arrays[0].astype(helper.tensor_dtype_to_np_dtype(attributes["to"]))


def _divide(arrays: Arrays, attributes: Attributes) -> np.ndarray:  # noqa: ARG001
    return (np.sign(arrays[0]) * (np.abs(arrays[0]) // np.abs(arrays[1]))) * np.sign(arrays[1])


def _product(arrays: Arrays, attributes: Attributes) -> np.ndarray:
    keeps = bool(attributes.get("keepdims", 1))
    return np.prod(arrays[0], axis=_axes(arrays, attributes), keepdims=keeps)


def _pairwise(function: Callable) -> Callable[[Arrays, Attributes], np.ndarray]:
    return lambda arrays, _attributes: function(*arrays)


_FOLDS: dict[str, Callable[[Arrays, Attributes], np.ndarray]] = {
    "Concat": _concat,
    "Gather": _gather,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Slice": _slice,
    "Cast": _cast,
    "Div": _divide,
    "ReduceProd": _product,
    "Add": _pairwise(np.add),
    "Sub": _pairwise(np.subtract),
    "Mul": _pairwise(np.multiply),
    "Identity": _pairwise(np.array),
}

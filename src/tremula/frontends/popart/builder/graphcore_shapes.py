"""Types of the results of ai.graphcore's operators, from those of their inputs."""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto

from tremula.frontends.popart.builder.inference import TensorType
from tremula.frontends.popart.tensor_info import onnx_type

Types = Sequence[TensorType]
Attributes = Mapping[str, Any]
Infer = Callable[[Types, Attributes, int], list[TensorType]]
_OPEN = TensorType()
_INT32 = TensorProto.INT32


def like(place: int) -> Infer:
    """Every result has the type of one input."""

    def infer(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
        return [types[place] if place < len(types) else _OPEN] * n_outputs

    return infer


def each_like_its_input(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    return list(types[:n_outputs])


def broadcast(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    """Operands stretch to a common shape."""
    if not all(t.is_static for t in types):
        return [TensorType(types[0].element)]
    shape = np.broadcast_shapes(*(t.sizes() for t in types))
    return [TensorType(types[0].element, shape)]


def loss(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    """A scalar, or without a reduction what the loss is computed for."""
    if attributes.get("reduction", "Mean") != "NoReduction":
        return [TensorType(types[0].element, ())]
    return [types[0]]


def nll(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:
    result = loss(types, attributes, n_outputs)[0]
    return [TensorType(types[0].element, types[1].shape)] if result == types[0] else [result]


def ctc(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:
    """Beside the loss, the gradient by the log probabilities."""
    result = loss(types, attributes, n_outputs)[0]
    out = attributes.get("outDataType", "UNDEFINED")
    element = types[0].element if out == "UNDEFINED" else onnx_type(out)
    shape = (types[0].sizes()[1],) if result == types[0] and types[0].is_static else result.shape
    return [TensorType(element, shape), types[0]]


def new_tensor(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    return [TensorType(int(attributes["data_type"]), tuple(attributes["shape"]))]


def reshaped(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    """0 keeps a size, -1 is what remains."""
    source, asked = types[0], list(attributes["shape"])
    if not source.is_static:
        return [source.with_shape([n if n > 0 else None for n in asked])]
    sizes = [source.sizes()[i] if n == 0 else n for i, n in enumerate(asked)]
    rest = prod(source.sizes()) // max(prod(n for n in sizes if n != -1), 1)
    return [source.with_shape([rest if n == -1 else n for n in sizes])]


def with_sizes_at_axes(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    """A dynamic slice: given sizes in some dimensions."""
    if types[0].shape is None:
        return [types[0]]
    shape = list(types[0].shape)
    for axis, size in zip(attributes["axes"], attributes["sizes"], strict=True):
        shape[axis] = size
    return [types[0].with_shape(shape)]


def subsampled(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    if not types[0].is_static:
        return [TensorType(types[0].element)]
    pairs = zip(types[0].sizes(), attributes["strides"], strict=True)
    return [types[0].with_shape([-(-n // stride) for n, stride in pairs])]


def sliced(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    if not types[0].is_static:
        return [TensorType(types[0].element)]
    shape = list(types[0].sizes())
    axes = attributes.get("axes") or range(len(attributes["starts"]))
    for axis, start, end in zip(axes, attributes["starts"], attributes["ends"], strict=True):
        shape[axis] = len(range(*slice(start, end).indices(shape[axis])))
    return [types[0].with_shape(shape)]


def lstm(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    """[steps, batch, hidden], or the last step alone; and the cell's state."""
    if not (types[0].is_static and types[1].is_static):
        return [TensorType(types[0].element)] * 2
    steps, batch, _ = types[0].sizes()
    hidden = types[1].sizes()[-1]
    last = types[0].with_shape((batch, hidden))
    is_full = attributes.get("outputFullSequence", 1)
    return [types[0].with_shape((steps, batch, hidden)) if is_full else last, last]


def group_norm(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:
    """The result, then the mean and the inverse deviation of each group."""
    if types[0].shape is None or types[0].shape[0] is None:
        return [types[0]] + [TensorType(types[0].element)] * (n_outputs - 1)
    n_groups = types[0].shape[0] * attributes["num_groups"]
    statistic = TensorType(types[0].element, (n_groups,))
    return [types[0], statistic, statistic][:n_outputs]


def batch_norm(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    return [types[0], types[3], types[4], types[3], types[4]][:n_outputs]


def depth_to_space(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    if not types[0].is_static:
        return [TensorType(types[0].element)]
    (n, c, h, w), b = types[0].sizes(), attributes["blocksize"]
    return [types[0].with_shape((n, c // b**2, h * b, w * b))]


def convolutions(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:
    """Attributes of all convolutions are joined, in their order."""
    result, places = [], {"strides": 0, "pads": 0, "dilations": 0}
    for i in range(n_outputs):
        data, weights = types[2 * i], types[2 * i + 1]
        n_dims = len(data.shape or ()) - 2

        def next_of(name: str, count: int, otherwise: int) -> list[int]:
            start = places[name]
            places[name] += count
            given: list[int] = list(attributes.get(name) or ())
            return given[start : start + count] or [otherwise] * count

        strides, dilations = next_of("strides", n_dims, 1), next_of("dilations", n_dims, 1)
        pads = next_of("pads", 2 * n_dims, 0)
        spatial = [
            (size + pads[d] + pads[n_dims + d] - dilations[d] * (weights.sizes()[2 + d] - 1) - 1)
            // strides[d]
            + 1
            for d, size in enumerate(data.sizes()[2:])
        ]
        result.append(data.with_shape((data.sizes()[0], weights.sizes()[0], *spatial)))
    return result


def reduced(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    """Over some axes, or all; values and where they stood."""
    if types[0].shape is None:
        return [types[0], TensorType(_INT32)]
    rank = len(types[0].shape)
    axes = {axis % rank for axis in attributes.get("axes") or range(rank)}
    keeps = attributes.get("keepdims", 1)
    pairs = [(1 if axis in axes else n, axis) for axis, n in enumerate(types[0].shape)]
    shape = tuple(n for n, axis in pairs if keeps or axis not in axes)
    return [types[0].with_shape(shape), TensorType(_INT32, shape)]


def scattered(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    if types[0].shape is None:
        return [types[0]]
    shape = list(types[0].shape)
    shape[attributes.get("axis", -1)] = attributes["axis_size"]
    return [types[0].with_shape(shape)]


def gathered_in_groups(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    data, indices = types[0].shape, types[1].shape
    if data is None or indices is None:
        return [TensorType(types[0].element)]
    axis = attributes.get("axis", 0) % len(data)
    return [types[0].with_shape((*data[:axis], *indices[1:], *data[axis + 1 :]))]


def sort(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    return [types[0], TensorType(_INT32, types[0].shape)]


def integers_like_input(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    return [TensorType(_INT32, types[0].shape)]


def beam_search(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    """Scores, lengths and labels of the best paths."""
    if not types[0].is_static:
        return [TensorType(types[0].element), TensorType(_INT32), TensorType(_INT32)]
    steps, batch, _ = types[0].sizes()
    paths = (batch, attributes.get("top_paths", 1))
    lengths, labels = TensorType(_INT32, paths), TensorType(_INT32, (*paths, steps))
    return [types[0].with_shape(paths), lengths, labels]


def packed_result(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    return [types[0].with_shape((attributes["resultSize"],))]


def normalised_image(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    """Three channels become four."""
    if types[0].shape is None:
        return [types[0]]
    return [TensorType(types[1].element, (*types[0].shape[:-1], 4))]


def reduce_scattered(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    """A share that depends on the number of replicas, which only a session knows."""
    return [TensorType(types[0].element, (None,))]


def spline_basis(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    if not types[0].is_static:
        return [TensorType(types[0].element), TensorType(_INT32)]
    n_edges, n_dims = types[0].sizes()
    shape = (n_edges, (attributes["degree"] + 1) ** n_dims)
    return [types[0].with_shape(shape), TensorType(_INT32, shape)]


def spline_weighting(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    if types[0].shape is None or types[1].shape is None:
        return [TensorType(types[0].element)]
    return [types[0].with_shape((types[0].shape[0], types[1].shape[-1]))]


def nothing(types: Types, attributes: Attributes, n_outputs: int) -> list[TensorType]:  # noqa: ARG001
    return []

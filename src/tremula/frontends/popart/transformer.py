"""GraphTransformer: rewrites of a whole ONNX model, before a session or a builder takes it."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tremula.base.errors import suggest
from tremula.frontends.popart.builder.external_data import move_initializers
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.model_files import read_model
from tremula.frontends.popart.tensor_info import FLOATING, type_name

_INT32_RANGE = np.iinfo(np.int32)
# Operators whose attribute names an element type.
_TYPE_ATTRIBUTES = {"to", "dtype"}
_TRAINED_NORM_OUTPUTS = 5
_TRAINING_MODE_SINCE = 14  # of BatchNormalization's attribute training_mode


class GraphTransformer:
    """A model that is rewritten by its methods; `getModelProto` returns the result."""

    def __init__(self, modelProtoOrFilename: str | bytes | os.PathLike | onnx.ModelProto):
        self._model = onnx.ModelProto()
        self._model.CopyFrom(read_model(modelProtoOrFilename))

    def getModelProto(self) -> bytes:
        """The model as ONNX's bytes."""
        return self._model.SerializeToString()

    def removeUnusedInputs(self) -> None:
        """Drop inputs and weights that no node reads."""
        graph = self._model.graph
        read = {name for inner in _graphs(graph) for node in inner.node for name in node.input}
        read |= {value.name for inner in _graphs(graph) for value in inner.output}
        _keep(graph.input, [value for value in graph.input if value.name in read])
        _keep(graph.initializer, [value for value in graph.initializer if value.name in read])

    def prepareNodesForTraining(self) -> None:
        """Let norms use the statistics of a batch and dropouts drop, as in training."""
        versions = {opset.domain: opset.version for opset in self._model.opset_import}
        is_new = versions.get("", versions.get("ai.onnx", 0)) >= _TRAINING_MODE_SINCE
        for graph in _graphs(self._model.graph):
            for node in graph.node:
                if node.op_type == "BatchNormalization" and node.domain == "":
                    _train_norm(node, is_new)
                elif node.op_type == "Dropout":
                    _drop_attribute(node, "is_test")

    def convertFloatsToHalfs(self) -> None:
        """32-bit floats become halves."""
        self._convert(TensorProto.FLOAT, TensorProto.FLOAT16)

    def convertDoublesToFloats(self) -> None:
        """64-bit floats become 32-bit ones."""
        self._convert(TensorProto.DOUBLE, TensorProto.FLOAT)

    def convertDoublesToHalfs(self) -> None:
        """64-bit floats become halves."""
        self._convert(TensorProto.DOUBLE, TensorProto.FLOAT16)

    def convertBFloats16ToFloat32(self) -> None:
        """bfloat16 becomes 32-bit floats."""
        self._convert(TensorProto.BFLOAT16, TensorProto.FLOAT)

    def convertINT64ToINT32(self, clip: bool = False) -> None:
        """64-bit integers become 32-bit integers; `clip` limits those that do not fit.

        Operands that ONNX defines as 64-bit, such as shapes, stay.
        """
        self._convert(TensorProto.INT64, TensorProto.INT32, clip=clip, spares_shapes=True)

    def convertINT8ToINT32(self) -> None:
        """8-bit integers become 32-bit integers."""
        self._convert(TensorProto.INT8, TensorProto.INT32)

    def convertINT16ToINT32(self) -> None:
        """16-bit integers become 32-bit integers."""
        self._convert(TensorProto.INT16, TensorProto.INT32)

    def convertUINT8ToINT32(self) -> None:
        """8-bit unsigned integers become 32-bit integers."""
        self._convert(TensorProto.UINT8, TensorProto.INT32)

    def convertUINT16ToINT32(self) -> None:
        """16-bit unsigned integers become 32-bit integers."""
        self._convert(TensorProto.UINT16, TensorProto.INT32)

    def convertInitializersToConstants(self, ids: Sequence[str]) -> None:
        """Weights become constants, which are not trained."""
        graph = self._model.graph
        initializers = {tensor.name: tensor for tensor in graph.initializer}
        for id in ids:
            if id not in initializers:
                raise popart_exception(
                    f"TensorId {id!r} not in the model initalizers: {suggest(id, initializers)}"
                )
        constants = [
            helper.make_node("Constant", [], [id], value=_renamed(initializers[id], ""))
            for id in ids
        ]
        gone = set(ids)
        _keep(graph.initializer, [t for t in graph.initializer if t.name not in gone])
        _keep(graph.input, [value for value in graph.input if value.name not in gone])
        _keep(graph.node, [*constants, *graph.node])

    def convertAllFixedPointInitializersToConstants(self) -> None:
        """Integer weights become constants."""
        initializers = self._model.graph.initializer
        self.convertInitializersToConstants(
            [t.name for t in initializers if type_name(t.data_type) not in FLOATING]
        )

    def saveInitializersExternally(self, ids: Sequence[str], filename: str | os.PathLike) -> None:
        """Write weights to a separate file; the model stores where each is in that file."""
        move_initializers(self._model.graph, list(ids), Path(filename))

    def _convert(
        self, source: int, target: int, *, clip: bool = False, spares_shapes: bool = False
    ) -> None:
        for graph in _graphs(self._model.graph):
            spared = _read_as_shapes(graph) if spares_shapes else set()
            for tensor in graph.initializer:
                if tensor.name not in spared:
                    _convert_tensor(tensor, source, target, clip)
            for value in (*graph.input, *graph.output, *graph.value_info):
                kind = value.type.tensor_type
                if kind.elem_type == source and value.name not in spared:
                    kind.elem_type = target
            for node in graph.node:
                if not spared.intersection(node.output):
                    _convert_node(node, source, target, clip)


# Operands, by position, that ONNX reads as shapes, axes or bounds: they stay 64-bit.
_SHAPE_OPERANDS = {
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "ConstantOfShape": (0,), "Slice": (1, 2, 3, 4),
    "Pad": (1, 3), "Squeeze": (1,), "Unsqueeze": (1,), "Split": (1,), "Resize": (3,), "TopK": (1,),
    "ReduceSum": (1,), "OneHot": (1,), "Loop": (0,),
}  # fmt: skip


def _read_as_shapes(graph: onnx.GraphProto) -> set[str]:
    """Tensors that ONNX wants as 64-bit integers, and what they are made of."""
    result = {
        node.input[place]
        for node in graph.node
        for place in _SHAPE_OPERANDS.get(node.op_type, ())
        if place < len(node.input)
    }
    for node in reversed(graph.node):
        if result.intersection(node.output) and node.op_type not in ("Shape", "Cast"):
            result |= set(node.input)
    return result


def _convert_tensor(tensor: TensorProto, source: int, target: int, clip: bool) -> None:
    if tensor.data_type != source:
        return
    array = numpy_helper.to_array(tensor)
    if target == TensorProto.INT32 and source == TensorProto.INT64:
        is_outside = (array < _INT32_RANGE.min) | (array > _INT32_RANGE.max)
        if is_outside.any() and not clip:
            raise popart_exception(
                f"INT64 tensor {tensor.name!r} has values that do not fit INT32, such as"
                f" {array[is_outside].flat[0]}: call convertINT64ToINT32(clip=True) to clip them"
            )
        array = np.clip(array, _INT32_RANGE.min, _INT32_RANGE.max)
    converted = array.astype(helper.tensor_dtype_to_np_dtype(target))
    tensor.CopyFrom(numpy_helper.from_array(converted, tensor.name))


def _convert_node(node: onnx.NodeProto, source: int, target: int, clip: bool) -> None:
    for attribute in node.attribute:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.i == source:
            attribute.i = target
        elif attribute.type == AttributeProto.TENSOR:
            _convert_tensor(attribute.t, source, target, clip)


def _train_norm(node: onnx.NodeProto, is_new: bool) -> None:
    """Old norms train if they give statistics, new ones by an attribute."""
    if is_new:
        _drop_attribute(node, "training_mode")
        node.attribute.append(helper.make_attribute("training_mode", 1))
        return
    names = ("mean", "var", "saved_mean", "saved_var")
    missing = _TRAINED_NORM_OUTPUTS - len(node.output)
    if missing > 0:
        node.output.extend(f"{node.output[0]}/{name}" for name in names[-missing:])


def _drop_attribute(node: onnx.NodeProto, name: str) -> None:
    _keep(node.attribute, [a for a in node.attribute if a.name != name])


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """A graph and those inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _graphs(attribute.g)


def _keep(field: object, wanted: Iterable) -> None:
    """Let a repeated field hold these messages only."""
    copies = []
    for message in wanted:
        copy = type(message)()
        copy.CopyFrom(message)
        copies.append(copy)
    del field[:]  # pyright: ignore[reportIndexIssue]
    field.extend(copies)  # pyright: ignore[reportAttributeAccessIssue]


def _renamed(tensor: TensorProto, name: str) -> TensorProto:
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy

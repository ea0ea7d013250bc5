"""A graph under construction: its nodes, the types of its tensors, the constants shapes need."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import onnx
from onnx import AttributeProto, TensorProto, TypeProto, checker, helper, shape_inference

from tremula.base.errors import suggest
from tremula.frontends.onnx.table import Operator as Entry
from tremula.frontends.onnx.table import find_operator
from tremula.frontends.popart.builder.folding import folded
from tremula.frontends.popart.builder.graphcore_ops import result_types
from tremula.frontends.popart.builder.ids import IdMaker
from tremula.frontends.popart.builder.inference import (
    MAX_KNOWN_ELEMENTS,
    OWN_SIZES,
    InferredType,
    as_popart,
    infer,
    infer_whole,
    special_types,
    type_of,
)
from tremula.frontends.popart.builder.signatures import OperatorMethod
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.tensor_info import FLOATING, type_name

PARTIAL_GRAPH = "BuilderGraph"


class GraphInProgress:
    """One `GraphProto` that grows; a graph inside an operation sees the tensors of its parent."""

    def __init__(self, parent: "GraphInProgress | None" = None, name: str = PARTIAL_GRAPH):
        self.parent = parent
        self.proto = onnx.GraphProto(name=name)
        self.ids = IdMaker(parent.ids if parent is not None else None)
        self.types: dict[str, TypeProto] = {}
        self.constants: dict[str, TensorProto] = {}
        self.maker: dict[str, onnx.NodeProto] = {}  # id -> the node that makes it
        self.arguments: list[str] = []  # of a call: inputs, and tensors of the parent it declares
        self._operators: list[OperatorMethod] = []  # of each node
        self.opsets: dict[str, int] = parent.opsets if parent is not None else {}

    # -- tensors -----------------------------------------------------------------------------------

    def add_input(self, id: str, type: TypeProto | None) -> None:
        value = self.proto.input.add(name=id)
        self.arguments.append(id)
        if type is not None:
            value.type.CopyFrom(type)
            self.types[id] = type

    def add_initializer(self, tensor: TensorProto) -> None:
        self.proto.initializer.append(tensor)
        self.types[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        self.note_constant(tensor.name, tensor)

    def note_constant(self, id: str, tensor: TensorProto) -> None:
        """Remember a value that shapes may depend on."""
        if prod(tensor.dims) <= MAX_KNOWN_ELEMENTS:
            self.constants[id] = tensor

    def add_output(self, id: str) -> None:
        self.check_exists(id)
        result = self.find_type(id)
        value = self.proto.output.add(name=id)
        if result is not None:
            value.type.CopyFrom(result)

    def check_exists(self, id: str) -> None:
        if not self.ids.sees(id):
            raise popart_exception(
                f"No tensor {id!r} in the graph: {suggest(str(id), self.ids.seen())}"
            )

    def find_type(self, id: str) -> TypeProto | None:
        if id in self.types:
            return self.types[id]
        return self.parent.find_type(id) if self.parent is not None else None

    def find_constant(self, id: str) -> TensorProto | None:
        if id in self.constants:
            return self.constants[id]
        return self.parent.find_constant(id) if self.parent is not None else None

    def type_of(self, id: str) -> InferredType:
        """The type of a tensor; inferred from the whole graph where its node is not enough."""
        self.check_exists(id)
        result = type_of(self.find_type(id) or TypeProto())
        if not result.is_static and self.parent is None:
            self.types |= infer_whole(self.model())
            result = type_of(self.types.get(id, TypeProto()))
        return result

    # -- nodes -------------------------------------------------------------------------------------

    def add_node(
        self,
        operator: OperatorMethod,
        inputs: Sequence[str],
        attributes: Iterable[AttributeProto],
        outputs: Sequence[str],
        name: str,
    ) -> onnx.NodeProto:
        """Append a node and find the types of its results."""
        for id in inputs:
            if id:
                self.check_exists(id)
        node = helper.make_node(operator.type, inputs, outputs, name=name, domain=operator.domain)
        node.attribute.extend(attributes)
        types = self._result_types(operator, node)
        self.proto.node.append(node)
        self._operators.append(operator)
        stored = self.proto.node[-1]
        self.types |= {id: type for id, type in types.items() if id}
        self.maker |= dict.fromkeys(outputs, stored)
        if operator.type == "Constant" and stored.attribute[0].name == "value":
            self.note_constant(outputs[0], stored.attribute[0].t)
        elif len(outputs) == 1:
            self._fold(stored)
        return stored

    def bind_types(self, names: Sequence[str], types: Sequence[TypeProto | None]) -> None:
        """Types for inputs that were added without one, and then for what depends on them."""
        missing = {
            name: type
            for name, type in zip(names, types, strict=False)
            if type is not None and name not in self.types
        }
        if not missing:
            return
        self.types |= missing
        for node, operator in zip(self.proto.node, self._operators, strict=False):
            if any(id and id not in self.types for id in node.output):
                new = self._result_types(operator, node)
                self.types |= {id: type for id, type in new.items() if id}
        for value in self.proto.output:
            if value.name in self.types:
                value.type.CopyFrom(self.types[value.name])

    def _fold(self, node: onnx.NodeProto) -> None:
        types = [type_of(self.find_type(id) or TypeProto()) for id in node.input]
        constants = [self.find_constant(id) for id in node.input]
        value = folded(node, values_of(node), types, constants)
        if value is not None:
            self.note_constant(node.output[0], value)

    def _result_types(self, operator: OperatorMethod, node: onnx.NodeProto) -> dict[str, TypeProto]:
        if operator.entry is not None:
            return self._entry_types(operator.entry, node)
        if operator.schema is None or any(a.type == AttributeProto.GRAPH for a in node.attribute):
            return {}  # the caller knows more
        result = {id: self.find_type(id) for id in node.input if id}
        if any(type is None for type in result.values()):
            return {}  # until the graph is used
        known = {id: self.find_constant(id) for id in node.input}
        values = {id: value for id, value in known.items() if value is not None}
        types = {id: type for id, type in result.items() if type is not None}
        special = special_types(node, types)
        if special is not None:
            return special
        if operator.type in OWN_SIZES and not operator.domain:
            unknown = popart_exception("its scales or sizes are not constant")
            return self._lax_types(operator, node, values, unknown)
        try:
            return as_popart(node, infer(operator.schema, node, types, values, self.opset_protos()))
        except (shape_inference.InferenceError, checker.ValidationError, RuntimeError) as error:
            return self._lax_types(operator, node, values, error)

    def _lax_types(
        self,
        operator: OperatorMethod,
        node: onnx.NodeProto,
        values: Mapping[str, TensorProto],
        error: Exception,
    ) -> dict[str, TypeProto]:
        """Types from running the operator itself: PopART takes more than ONNX specifies."""
        version = self.opsets.get(operator.domain, 1)
        entry = find_operator(operator.domain, operator.type, version)
        types = [self._type_if_named(id) for id in node.input]
        try:
            assert entry is not None, "every operator of PopART has an entry"
            known = [values.get(id) for id in node.input]
            result = result_types(entry, types, values_of(node), len(node.output), known)
        except (ValueError, AssertionError, KeyError):
            reason = str(error).rpartition("] ")[2].strip()
            raise popart_exception(
                f"{operator.type}{self._shown(node)} does not fit its inputs: {reason}"
            ) from error
        made = {id: t.proto() for id, t in zip(node.output, result, strict=False) if t.element}
        return as_popart(node, made)

    def _type_if_named(self, id: str) -> InferredType | None:
        """The type of an input; None for one that is left out."""
        return type_of(self.find_type(id) or TypeProto()) if id else None

    def _entry_types(self, entry: Entry, node: onnx.NodeProto) -> dict[str, TypeProto]:
        types = [self._type_if_named(id) for id in node.input]
        try:
            result = result_types(entry, types, values_of(node), len(node.output))
        except ValueError as error:
            raise popart_exception(
                f"{entry.name}{self._shown(node)} does not fit its inputs: {error}"
            ) from error
        return {id: t.proto() for id, t in zip(node.output, result, strict=False) if t.element}

    def _shown(self, node: onnx.NodeProto) -> str:
        shown = []
        for id in node.input:
            result = type_of(self.find_type(id) or TypeProto())
            kind = type_name(result.element).lower() if result.element else "?"
            shown.append(f"{id}: {kind}{list(result.shape) if result.shape is not None else ''}")
        return f"({', '.join(shown)})"

    # -- the whole ---------------------------------------------------------------------------------

    def opset_protos(self) -> list[onnx.OperatorSetIdProto]:
        return [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]

    def callee(self) -> onnx.GraphProto:
        """The graph as a call takes it: tensors of the parent that it declares are inputs, too."""
        graph = self.finished()
        del graph.input[:]
        for name in self.arguments:
            value = graph.input.add(name=name)
            if name in self.types:
                value.type.CopyFrom(self.types[name])
        return graph

    def finished(self) -> onnx.GraphProto:
        """The graph with the types of all its tensors."""
        graph = onnx.GraphProto()
        graph.CopyFrom(self.proto)
        named = {value.name for value in (*graph.input, *graph.output)}
        weights = {tensor.name for tensor in graph.initializer}
        for id, result in self.types.items():
            if id not in named and id not in weights and result.WhichOneof("value") is not None:
                graph.value_info.add(name=id).type.CopyFrom(result)
        return graph

    def model(self) -> onnx.ModelProto:
        opsets = self.opset_protos()
        made = helper.make_model(
            self.finished(), producer_name="tremula.popart", opset_imports=opsets
        )
        official = [helper.make_opsetid(o.domain, o.version) for o in opsets if o.domain == ""]
        made.ir_version = max(4, helper.find_min_ir_version_for(official))
        return made

    def load(self, model: onnx.ModelProto) -> None:
        """Continue from a model that exists."""
        self.proto.CopyFrom(model.graph)
        for opset in model.opset_import:
            self.opsets["" if opset.domain == "ai.onnx" else opset.domain] = opset.version
        for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
            self.types[value.name] = value.type
        for tensor in model.graph.initializer:
            kind = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
            self.types[tensor.name] = kind
            self.note_constant(tensor.name, tensor)
        for node in self.proto.node:
            self.maker |= dict.fromkeys(node.output, node)
        weights = [tensor.name for tensor in self.proto.initializer]
        self.ids.taken |= {*self.maker, *weights, *(value.name for value in self.proto.input)}

    def trainable(self) -> list[str]:
        """Weights: the floating initialisers."""
        return [t.name for t in self.proto.initializer if type_name(t.data_type) in FLOATING]


def _value(attribute: AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    return _as_text(value)


def _as_text(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value


def values_of(node: onnx.NodeProto) -> Mapping[str, Any]:
    """The attributes of a node by name."""
    return {attribute.name: _value(attribute) for attribute in node.attribute}

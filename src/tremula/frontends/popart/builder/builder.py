"""Builder: writes an ONNX model call by call."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TypeProto, helper

from tremula.base.errors import suggest
from tremula.base.storage.atomic_file import write_bytes
from tremula.frontends.onnx.custom_operators import custom_operator
from tremula.frontends.onnx.table import GRAPHCORE_DOMAIN, ML_DOMAIN
from tremula.frontends.popart.builder.annotations import RECOMPUTE, Annotations
from tremula.frontends.popart.builder.external_data import move_initializers
from tremula.frontends.popart.builder.graph import GraphInProgress
from tremula.frontends.popart.builder.inference import type_of
from tremula.frontends.popart.builder.opsets import AiGraphcore, AiOnnx, AiOnnxMl, OpSet
from tremula.frontends.popart.builder.signatures import (
    NEWEST_OPSET,
    ONNX_DOMAIN,
    OperatorMethod,
    operators,
    tensor_proto,
)
from tremula.frontends.popart.data_flow import InputSettings
from tremula.frontends.popart.enums import RecomputeType
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.groups import VariableSettings
from tremula.frontends.popart.introspection import defaultAiOnnxOpset
from tremula.frontends.popart.model_files import read_model
from tremula.frontends.popart.tensor_info import (
    DebugContext,
    TensorInfo,
    as_shape,
    onnx_type,
    text_of,
    type_name,
)

DEFAULT_OPSET = defaultAiOnnxOpset
_PREFIX = "aiOnnxOpset"
# What the model keeps about tensors beyond ONNX, in its metadata.
BROADCAST_KEY, VARIABLE_KEY = "popart.broadcast_inputs", "popart.variable_settings"
REPLICATION_KEY = "popart.replication_factor"


class Builder(Annotations):
    """Builds an ONNX model: tensors go in, operators are methods of op-sets, ids come back.

    `opsets` chooses versions, such as {"ai.onnx": 11, "ai.graphcore": 1}. Without it, the first
    op-set that is used decides: `builder.aiOnnx` is version 10, `builder.aiOnnxOpset17` is 17.
    """

    def __init__(
        self,
        modelProtoOrFilename: str | bytes | onnx.ModelProto | os.PathLike | None = None,
        opsets: Mapping[str, int] | None = None,
        builderCore: GraphInProgress | None = None,
    ):
        self._graph = builderCore if builderCore is not None else GraphInProgress()
        self._in_force: dict[str, Any] = {}
        self._variables: dict[str, VariableSettings] = {}
        self._broadcast: list[str] = []
        self._replication_factor: int | None = None
        if modelProtoOrFilename is not None:
            self._graph.load(read_model(modelProtoOrFilename))
        if opsets:
            self._choose(int(opsets["ai.onnx"]))

    # -- op-sets -----------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> OpSet:
        if name == "aiOnnx" or name.startswith(_PREFIX):
            return self._onnx(name)
        if name in ("aiOnnxMl", "aiOnnxMlOpset1") or name.startswith("aiOnnxMlOpset"):
            version = int(name.removeprefix("aiOnnxMl").removeprefix("Opset") or 1)
            self._graph.opsets.setdefault(ML_DOMAIN, version)
            return AiOnnxMl(self._graph, self._emit, version)
        if name in ("aiGraphcore", "aiGraphcoreOpset1"):
            return AiGraphcore(self._graph, self._emit, 1)
        if name.startswith("_"):
            raise AttributeError(name)
        known = [n for n in dir(self) if not n.startswith("_")]
        raise AttributeError(f"Builder has no attribute {name!r}: {suggest(name, known)}")

    def __dir__(self) -> list[str]:
        onnx_opsets = [f"{_PREFIX}{version}" for version in range(6, NEWEST_OPSET + 1)]
        return [*super().__dir__(), "aiOnnx", *onnx_opsets, "aiOnnxMl", "aiGraphcore"]

    def _onnx(self, name: str) -> AiOnnx:
        chosen = self._graph.opsets.get(ONNX_DOMAIN)
        if name == "aiOnnx":
            version = DEFAULT_OPSET if chosen is None else chosen
        else:
            digits = name.removeprefix(_PREFIX)
            version = int(digits) if digits.isdigit() else 0
        self._choose(version, name)
        return AiOnnx(self._graph, self._emit, version)

    def _choose(self, version: int, name: str = "") -> None:
        chosen = self._graph.opsets.get(ONNX_DOMAIN)
        if chosen is not None and chosen != version:
            raise RuntimeError(
                f"Invalid opset '{name or version}' selected. Opset for domain ai.onnx already"
                f" defined as {chosen}"
            )
        if not 1 <= version <= NEWEST_OPSET:
            raise ValueError(
                f"Unsupported or unrecognized ai.onnx version: {version}; the newest is"
                f" {NEWEST_OPSET}"
            )
        self._graph.opsets[ONNX_DOMAIN] = version

    # -- inputs and weights ------------------------------------------------------------------------

    def addInputTensor(
        self,
        tensorInfo: TensorInfo | str | None = None,
        *rest: Any,
        dataType: str | None = None,
        shape: Sequence[int] | None = None,
        settings: InputSettings | None = None,
        debugContext: str | DebugContext = "",
        debugPrefix: str | DebugContext = "",
    ) -> str:
        """An input that a step feeds: a `TensorInfo`, or a type and a shape; returns its id."""
        more, info = list(rest), tensorInfo
        if not isinstance(info, TensorInfo):
            sizes = more.pop(0) if more and shape is None else shape
            kind = info if dataType is None else dataType
            if sizes is None or kind is None:
                raise popart_exception(f"addInputTensor({kind!r}) needs a type and a shape")
            info = TensorInfo(kind, sizes)
        if more and isinstance(more[0], InputSettings):
            settings = more.pop(0)
        name = _first_name(debugContext, debugPrefix, *more)
        element = onnx_type(info.data_type())
        kind = helper.make_tensor_type_proto(element, as_shape(info.shape()))
        id = self._new_input(name or "input", kind)
        if settings is not None and settings.is_broadcast:
            self._broadcast.append(id)
        return id

    def addUntypedInputTensor(self, debugContext: str | DebugContext = "") -> str:
        """An input whose type follows from the graph around this one."""
        return self._new_input(text_of(debugContext) or "input", None)

    def addInputTensorFromParentGraph(self, tensorId: str) -> None:
        """Let a graph inside an operation read a tensor of the graph around it."""
        parent = self._graph.parent
        if parent is None:
            raise popart_exception("This graph has no parent graph")
        parent.check_exists(tensorId)
        self._graph.arguments.append(tensorId)

    def addInitializedInputTensor(
        self,
        initVal: np.ndarray,
        *rest: Any,
        variableSettings: VariableSettings | None = None,
        debugContext: str | DebugContext = "",
        debugPrefix: str | DebugContext = "",
    ) -> str:
        """A weight with its first value; floating ones are trained."""
        more = list(rest)
        if more and isinstance(more[0], VariableSettings):
            variableSettings = more.pop(0)
        name = _first_name(debugContext, debugPrefix, *more)
        if not isinstance(initVal, np.ndarray | np.generic):
            raise popart_exception(
                f"addInitializedInputTensor takes an array, got {type(initVal).__name__}"
            )
        id = self._graph.ids.make(name or "init_input")
        if variableSettings is not None:
            self._variables[id] = variableSettings
        self._graph.add_initializer(tensor_proto(initVal, id))
        return id

    def _new_input(self, name: str, type: TypeProto | None) -> str:
        id = self._graph.ids.make(name)
        self._graph.add_input(id, type)
        return id

    def addOutputTensor(self, outputName: str) -> None:
        """Make a tensor an output of the graph."""
        self._graph.add_output(outputName)

    # -- operations --------------------------------------------------------------------------------

    def customOp(
        self,
        opName: str,
        opVersion: int,
        domain: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Any],
        numOutputs: int = 1,
        name: str = "",
    ) -> list[str]:
        """An operation of ONNX, or one that `tremula.custom_operation` registers."""
        if not isinstance(attributes, Mapping):
            raise popart_exception(f"Attributes of an operation are a dict, got {attributes!r}")
        self._graph.opsets.setdefault("" if domain == "ai.onnx" else domain, int(opVersion))
        made = [helper.make_attribute(key, value) for key, value in attributes.items()]
        domain = "" if domain == "ai.onnx" else domain
        known = operators(domain, int(opVersion)).get(opName.lower())
        schema = known.schema if known is not None else None
        entry = custom_operator(domain, opName, int(opVersion)) if known is None else None
        operator = OperatorMethod(
            domain, opName, (0, 2**31), (1, 2**31), (), schema=schema, entry=entry
        )
        return self._emit(operator, list(inputs), made, numOutputs, name)

    def reshape_const(
        self,
        aiOnnx: AiOnnx,
        args: Sequence[str],
        shape: Sequence[int],
        debugContext: str | DebugContext = "",
    ) -> str:
        """A tensor in another, constant shape."""
        if not isinstance(aiOnnx, AiOnnx):
            raise popart_exception(f"Expected builder.aiOnnx as the first argument, got {aiOnnx!r}")
        text = text_of(debugContext)
        sizes = aiOnnx.constant(np.array(shape, np.int64), text + "_const" if text else "")
        result = aiOnnx.reshape([args[0], sizes], text)
        assert isinstance(result, str), "Reshape has one result"
        return result

    def checkpointOutput(self, nodeOutputNames: Sequence[str]) -> list[str]:
        """Copy tensors that the backward pass needs. Returns the ids to continue with."""
        identity = operators(ONNX_DOMAIN, self._onnx("aiOnnx").version)["identity"]
        result = []
        for id in nodeOutputNames:
            made = self._emit(identity, [id], [], 1, "Checkpoint")[0]
            self._set(self._graph.maker[made], RECOMPUTE, int(RecomputeType.Checkpoint))
            result.append(made)
        return result

    def _emit(
        self,
        operator: OperatorMethod,
        inputs: Sequence[str],
        attributes: Sequence[AttributeProto],
        n_outputs: int,
        name: str,
    ) -> list[str]:
        """Append a node with the annotations in force; the ids of its results."""
        if operator.domain == GRAPHCORE_DOMAIN:
            self._graph.opsets.setdefault(GRAPHCORE_DOMAIN, 1)
        base = name or operator.type
        outputs = [self._graph.ids.make(base, i) for i in range(n_outputs)]
        notes = [helper.make_attribute(key, value) for key, value in self._in_force.items()]
        full = self._graph.ids.prefix() + base
        try:
            self._graph.add_node(operator, inputs, [*attributes, *notes], outputs, full)
        except Exception:
            self._graph.ids.taken.difference_update(outputs)
            raise
        return outputs

    def createSubgraphBuilder(self) -> "Builder":
        """A builder for a graph inside an operation of this one: a branch, a body, a callee."""
        return Builder(builderCore=GraphInProgress(self._graph, f"{self._graph.proto.name}/sub"))

    def setGraphName(self, name: str) -> None:
        """Name the graph."""
        self._graph.proto.name = name

    # -- questions ---------------------------------------------------------------------------------

    def getTensorShape(self, id: str) -> list[int]:
        """The shape of any tensor."""
        result = self._graph.type_of(id)
        if not result.is_static:
            raise popart_exception(f"The shape of the tensor {id!r} is not known when it is built")
        return list(result.sizes())

    def getTensorDtypeString(self, id: str) -> str:
        """The type of any tensor as NumPy names it: "float32", …"""
        result = self._graph.type_of(id)
        if not result.element:
            raise popart_exception(f"The type of the tensor {id!r} is not known when it is built")
        return TensorInfo(type_name(result.element), ()).data_type_lcase()

    def isInitializer(self, id: str) -> bool:
        """Whether a tensor is a weight with a value."""
        self._graph.check_exists(id)
        return any(tensor.name == id for tensor in self._graph.proto.initializer)

    def getInputTensorIds(self) -> list[str]:
        """The ids of inputs, then of weights."""
        weights = [tensor.name for tensor in self._graph.proto.initializer]
        fed = [value.name for value in self._graph.proto.input if value.name not in weights]
        return [*fed, *weights]

    def getOutputTensorIds(self) -> list[str]:
        """The ids of outputs."""
        return [value.name for value in self._graph.proto.output]

    def getValueTensorIds(self) -> list[str]:
        """The ids of all results of operations that are not outputs."""
        outputs = set(self.getOutputTensorIds())
        return [id for id in self._graph.maker if id not in outputs]

    def getTrainableTensorIds(self) -> list[str]:
        """The ids of weights that are trained."""
        return self._graph.trainable()

    def hasValueInfo(self, id: str) -> bool:
        """Whether the type of a tensor is known."""
        return type_of(self._graph.find_type(id) or TypeProto()).is_static

    def embedReplicationFactor(self, replicationFactor: int) -> None:
        """Note in the model for how many replicas it was made."""
        self._replication_factor = int(replicationFactor)

    # -- the model ---------------------------------------------------------------------------------

    def getModelProto(self) -> bytes:
        """The model as ONNX's bytes."""
        return self._model().SerializeToString()

    def saveModelProto(self, filename: str | os.PathLike) -> None:
        """Write the model to a file."""
        write_bytes(filename, self.getModelProto())

    def saveInitializersExternally(self, ids: Sequence[str], filename: str | os.PathLike) -> None:
        """Write weights to a separate file; the model keeps where they are in it."""
        move_initializers(self._graph.proto, list(ids), Path(filename))

    def _model(self) -> onnx.ModelProto:
        if ONNX_DOMAIN not in self._graph.opsets:
            self._graph.opsets[ONNX_DOMAIN] = DEFAULT_OPSET
        model = self._graph.model()
        notes = {BROADCAST_KEY: "\n".join(self._broadcast)} if self._broadcast else {}
        for id, settings in self._variables.items():
            numbers = [
                *settings.getSharedVariableDomain().numbers(),
                int(settings.getRetrievalMode()),
            ]
            notes[f"{VARIABLE_KEY}:{id}"] = " ".join(map(str, numbers))
        if self._replication_factor is not None:
            notes[REPLICATION_KEY] = str(self._replication_factor)
        helper.set_model_props(model, notes)
        return model


def _first_name(*contexts: str | DebugContext) -> str:
    """The name among the arguments that may hold one."""
    return next((str(context) for context in contexts if str(context)), "")

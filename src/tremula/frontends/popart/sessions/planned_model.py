"""A session's model before it is compiled: types of tensors, kinds of anchors, plan of a step."""

from functools import cached_property

import onnx

from tremula.base.errors import suggest
from tremula.frontends.onnx.graph import needed_for
from tremula.frontends.onnx.imported import import_model
from tremula.frontends.popart import names
from tremula.frontends.popart.builder.inference import InferredType, infer_whole, type_of
from tremula.frontends.popart.enums import DeviceType, RecomputationType
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.model_files import read_model
from tremula.frontends.popart.patterns.rewrite import rewritten
from tremula.frontends.popart.sessions.anchors import sort_anchors, weight_of
from tremula.frontends.popart.sessions.buffers import StepInput
from tremula.frontends.popart.sessions.checks import (
    abort_conditions,
    check_gradients,
    check_nodes,
    differentiable,
)
from tremula.frontends.popart.sessions.ir_json import serialised
from tremula.frontends.popart.sessions.placement import check_depth, place_nodes
from tremula.frontends.popart.sessions.program import torch_type
from tremula.frontends.popart.sessions.recomputation import checkpoints
from tremula.frontends.popart.sessions.setup import SessionSetup
from tremula.frontends.popart.sessions.step import StepPlan
from tremula.frontends.popart.sessions.updates import n_chips_named, updates_of
from tremula.frontends.popart.sessions.weights import SessionModel
from tremula.frontends.popart.tensor_info import TensorInfo, type_name
from tremula.ir.step import BlockPlace, CapturedStep


class PlannedModel:
    """A model with everything that is known of it before it is compiled."""

    def __init__(self, setup: SessionSetup):
        self.setup = setup
        self.original = read_model(setup.model)
        self.model = SessionModel(
            rewritten(self.original, setup.patterns, self._preserved()), setup.options.n_replicas
        )
        shapes = {id: setup.shapes.get(id).shape() for id in setup.shapes.getAllTensorIds()}
        self.imported = import_model(self.model.proto, input_shapes=shapes)
        self.anchors = sort_anchors(
            setup.flow.anchors(),
            self.imported.tensor_names,
            [tensor.name for tensor in self.graph.initializer],
            is_training=setup.is_training,
        )
        self._check()
        self.plan = self._planned()

    def _preserved(self) -> set[str]:
        """Tensors that rewriting must not remove."""
        anchors = {weight_of(id).removeprefix(names.GRADIENT) for id in self.setup.flow.anchors()}
        return anchors | ({self.setup.loss} if self.setup.loss is not None else set())

    @property
    def graph(self) -> onnx.GraphProto:
        """The graph as patterns rewrote it."""
        return self.model.proto.graph

    # -- types -------------------------------------------------------------------------------------

    @cached_property
    def types(self) -> dict[str, InferredType]:
        """Types of all tensors that the model itself says or implies."""
        proto = self.imported.proto
        graph = proto.graph
        declared = (*graph.value_info, *graph.input, *graph.output)
        result = {value.name: value.type for value in declared}
        result = {**infer_whole(proto), **result}
        types = {name: type_of(kind) for name, kind in result.items()}
        for tensor in graph.initializer:
            types[tensor.name] = InferredType(tensor.data_type, tuple(tensor.dims))
        return types

    def info(self, id: str) -> TensorInfo | None:
        """Type and shape of a tensor; None where they are not known without compiling."""
        kind = self.types.get(id)
        if kind is None or not kind.is_static or not kind.element:
            return None
        return TensorInfo(type_name(kind.element), kind.sizes())

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """Bytes of tensors, as far as they are known without compiling."""
        infos = ((name, self.info(name)) for name in self.types)
        return {name: info.nbytes() for name, info in infos if info is not None}

    @cached_property
    def differentiable(self) -> set[str]:
        """Tensors that have a gradient; none in inference."""
        loss = self.setup.loss
        nodes = self.imported.module.graph.nodes
        return set() if loss is None else differentiable(nodes, loss, self.types)

    # -- the plan ----------------------------------------------------------------------------------

    def _check(self) -> None:
        loss = self.setup.loss
        if loss is not None and loss not in self.imported.tensor_names:
            raise popart_exception(
                f"Could not find loss tensor '{loss}' in the model:"
                f" {suggest(loss, self.imported.tensor_names)}"
            )
        check_nodes(self.graph, self.setup.repetition.n_replicas, self.types)
        if loss is not None:
            nodes = self.imported.module.graph.nodes
            check_gradients(nodes, loss, self.anchors.gradients, self.types)

    def _planned(self) -> StepPlan:
        is_training = self.setup.is_training
        mode = RecomputationType(self.setup.options.autoRecomputation)
        weights = [weight_of(id) for id in self.anchors.weights] if is_training else []
        aborts = abort_conditions(self.graph)
        wanted = [*self.anchors.forward, *weights, *filter(None, aborts)]
        return StepPlan(
            wanted=tuple(dict.fromkeys(wanted)),
            aborts=aborts,
            loss=self.setup.loss,
            gradients=self.anchors.gradients,
            places=self._places(),
            checkpoints=checkpoints(self.graph, mode, self._sizes) if is_training else frozenset(),
            updates=updates_of(self.graph, is_training=is_training),
        )

    def _places(self) -> dict[str, BlockPlace]:
        device, options = self.setup.device, self.setup.options
        is_one_chip = device.type is DeviceType.Cpu and device.numIpus == 1
        n_chips = n_chips_named(self.graph) if is_one_chip else device.numIpus
        places = place_nodes(self.graph, options, n_chips, self._sizes)
        n_batches = self.setup.flow.batchesPerStep()
        check_depth(places, options, n_batches, is_training=self.setup.is_training)
        return places

    def check_loss(self) -> None:
        """Raise for a loss that has several elements."""
        loss = self.setup.loss or ""
        kind = self.types.get(loss)
        if kind is not None and kind.is_static and any(n != 1 for n in kind.sizes()):
            raise popart_exception(
                f"'{loss}' has shape {list(kind.sizes())}: reduce it, for example with"
                " identityloss. The loss must be a scalar tensor"
            )

    @cached_property
    def inputs(self) -> list[StepInput]:
        """The inputs that anything of the step reads."""
        nodes = needed_for(self.imported.module.graph.nodes, self.plan.needed())
        read = {name for node in nodes for name in node.reads} | set(self.plan.needed())
        result = []
        for value in self.imported.inputs:
            if value.name not in read:
                continue
            shape = value.static_shape
            if shape is None:
                raise popart_exception(
                    f"The shape of the input {value.name!r} is not known: {value}. Say it with"
                    " popart.InputShapeInfo"
                )
            info = TensorInfo(value.dtype, shape)
            is_shared = value.name in self.model.broadcast
            result.append(StepInput(value.name, info, torch_type(value.type), is_shared))
        return result

    def as_json(self, step: CapturedStep | None) -> str:
        """The graph as JSON, with the backward pass and update of a step that trains."""
        return serialised(
            self.graph,
            self.types,
            self.plan.places,
            step,
            is_in_place=self.setup.patterns.isPatternEnabled("InPlace"),
        )

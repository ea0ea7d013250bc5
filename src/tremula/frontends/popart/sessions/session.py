"""InferenceSession and TrainingSession: a model on a device, compiled, run, read back."""

import copy
import os
import tempfile
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import onnx
import torch
from torch import Tensor

from tremula.base.errors import suggest
from tremula.frontends.onnx.element_types import UNSIGNED, element_type
from tremula.frontends.onnx.graph import needed_for
from tremula.frontends.onnx.imported import import_model
from tremula.frontends.popart import names
from tremula.frontends.popart.builder.inference import InferredType, infer_whole, type_of
from tremula.frontends.popart.data_flow import DataFlow, PyStepIO, PyStepIOCallback, PyWeightsIO
from tremula.frontends.popart.devices import DeviceInfo
from tremula.frontends.popart.enums import (
    DeviceType,
    IrSerializationFormat,
    RecomputationType,
    SyntheticDataMode,
)
from tremula.frontends.popart.exceptions import popart_errors, popart_exception
from tremula.frontends.popart.logging import getLogger
from tremula.frontends.popart.model_files import read_model
from tremula.frontends.popart.optimisers.optimisers import Optimizer
from tremula.frontends.popart.options.options import SessionOptions, check
from tremula.frontends.popart.options.patterns import Patterns
from tremula.frontends.popart.patterns.rewrite import rewritten
from tremula.frontends.popart.sessions.anchors import sort_anchors, weight_of
from tremula.frontends.popart.sessions.buffers import (
    StepInput,
    anchor_shape,
    micro_batches,
)
from tremula.frontends.popart.sessions.checks import (
    abort_conditions,
    check_gradients,
    check_nodes,
    differentiable,
)
from tremula.frontends.popart.sessions.collector import (
    Collector,
    info_of_tensor,
    optimiser_numbers,
    value_of_optimiser,
)
from tremula.frontends.popart.sessions.ir_json import serialised
from tremula.frontends.popart.sessions.placement import check_depth, place_nodes
from tremula.frontends.popart.sessions.program import SessionProgram, torch_type
from tremula.frontends.popart.sessions.recomputation import checkpoints
from tremula.frontends.popart.sessions.settings import step_settings
from tremula.frontends.popart.sessions.step import StepPlan
from tremula.frontends.popart.sessions.updates import n_chips_named, updates_of
from tremula.frontends.popart.sessions.weights import STATE_PREFIXES, SessionModel, written_model
from tremula.frontends.popart.step_settings import repetition
from tremula.frontends.popart.tensor_info import InputShapeInfo, TensorInfo, type_name
from tremula.ir.run.generators import new_seed, restore, state_of

if TYPE_CHECKING:  # the tile side loads slowly, and only those who use it pay
    from tremula.ir.run.tile_cache import StoredTileProgram
    from tremula.vision.pva.report import Report

_LOG = getLogger("session")
Model = str | bytes | os.PathLike | onnx.ModelProto


class _Session:
    """What inference and training share."""

    def __init__(
        self,
        fnModel: Model,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None,
        patterns: Patterns | None,
        userOptions: SessionOptions | None,
        name: str,
        loss: str | None = None,
        optimizer: Optimizer | None = None,
    ):
        self._options = copy.deepcopy(userOptions) if userOptions is not None else SessionOptions()
        check(self._options)
        if not isinstance(dataFlow, DataFlow):
            raise popart_exception(f"dataFlow must be a popart.DataFlow, got {dataFlow!r}")
        if not isinstance(deviceInfo, DeviceInfo):
            raise popart_exception(f"Must pass a valid deviceInfo, got {deviceInfo!r}")
        self._flow, self._device, self.name = dataFlow, deviceInfo, name
        self._patterns = patterns if patterns is not None else Patterns()
        self._patterns.check()
        self._loss, self._optimizer = loss, copy.deepcopy(optimizer)
        self._repetition = repetition(
            self._options, dataFlow.batchesPerStep(), is_training=self._is_training
        )
        self._seed = new_seed()
        self._compiled: SessionProgram | None = None
        self._is_prepared = self._is_loaded = False
        with popart_errors():
            self._read(read_model(fnModel), inputShapeInfo or InputShapeInfo())
            self._plan = self._planned()

    @property
    def _is_training(self) -> bool:
        return self._loss is not None

    # -- the model ---------------------------------------------------------------------------------

    def _read(self, model: onnx.ModelProto, shapes: InputShapeInfo) -> None:
        kept = {weight_of(id).removeprefix(names.GRADIENT) for id in self._flow.anchors()}
        kept |= {self._loss} if self._loss is not None else set()
        self._original = model
        self._model = SessionModel(rewritten(model, self._patterns, kept), self._options.n_replicas)
        given = {id: shapes.get(id).shape() for id in shapes.getAllTensorIds()}
        self._imported = import_model(self._model.proto, input_shapes=given)
        graph = self._model.proto.graph
        self._anchored = sort_anchors(
            self._flow.anchors(),
            self._imported.tensor_names,
            [tensor.name for tensor in graph.initializer],
            is_training=self._is_training,
        )

    @cached_property
    def _types(self) -> dict[str, InferredType]:
        """Types of all tensors that the model itself tells."""
        proto = self._imported.proto
        graph = proto.graph
        declared = (*graph.value_info, *graph.input, *graph.output)
        result = {value.name: value.type for value in declared}
        result = {**infer_whole(proto), **result}
        types = {name: type_of(kind) for name, kind in result.items()}
        for tensor in graph.initializer:
            types[tensor.name] = InferredType(tensor.data_type, tuple(tensor.dims))
        return types

    def _planned(self) -> StepPlan:
        graph, kinds = self._model.proto.graph, self._anchored
        if self._loss is not None and self._loss not in self._imported.tensor_names:
            raise popart_exception(
                f"Could not find loss tensor '{self._loss}' in the model:"
                f" {suggest(self._loss, self._imported.tensor_names)}"
            )
        check_nodes(graph, self._repetition.n_replicas, self._types)
        if self._loss is not None:
            nodes = self._imported.module.graph.nodes
            check_gradients(nodes, self._loss, kinds.gradients, self._types)
        is_one_chip = self._device.type is DeviceType.Cpu and self._device.numIpus == 1
        n_chips = n_chips_named(graph) if is_one_chip else self._device.numIpus
        places = place_nodes(graph, self._options, n_chips, self._sizes())
        check_depth(
            places, self._options, self._flow.batchesPerStep(), is_training=self._is_training
        )
        mode = RecomputationType(self._options.autoRecomputation)
        kept = checkpoints(graph, mode, self._sizes()) if self._is_training else frozenset()
        weights = [weight_of(id) for id in kinds.weights] if self._is_training else []
        aborts = abort_conditions(graph)
        return StepPlan(
            wanted=tuple(dict.fromkeys([*kinds.forward, *weights, *filter(None, aborts)])),
            aborts=aborts,
            loss=self._loss,
            gradients=kinds.gradients,
            places=places,
            checkpoints=kept,
            updates=updates_of(graph, is_training=self._is_training),
        )

    def _sizes(self) -> dict[str, int]:
        """Bytes of tensors, as far as they are known without compiling."""
        result = {}
        for name, kind in self._types.items():
            if kind.is_static and kind.element:
                result[name] = TensorInfo(type_name(kind.element), kind.sizes()).nbytes()
        return result

    @cached_property
    def _inputs(self) -> list[StepInput]:
        """The inputs that anything of the step reads."""
        nodes = needed_for(self._imported.module.graph.nodes, self._plan.needed())
        read = {name for node in nodes for name in node.reads} | set(self._plan.needed())
        result = []
        for value in self._imported.inputs:
            if value.name not in read:
                continue
            shape = value.static_shape
            if shape is None:
                raise popart_exception(
                    f"The shape of the input {value.name!r} is not known: {value}. Say it with"
                    " popart.InputShapeInfo"
                )
            info = TensorInfo(value.dtype, shape)
            is_shared = value.name in self._model.broadcast
            result.append(StepInput(value.name, info, torch_type(value.type), is_shared))
        return result

    # -- compiling ---------------------------------------------------------------------------------

    @property
    def _program(self) -> SessionProgram:
        """The compiled model; it is compiled now if it was not yet."""
        if self._compiled is None:
            self._compiled = self._compile(None)
        return self._compiled

    def _compile(self, stored: "StoredTileProgram | None") -> SessionProgram:
        program = SessionProgram(
            self._model,
            self._imported,
            self._inputs,
            self._plan,
            self._optimizer,
            self._options,
        )
        settings = step_settings(
            self._options,
            self._device,
            self._repetition,
            program.groupings,
            self._seed,
        )
        with popart_errors():
            program.compile(settings, self._device, self.name, stored)
        return program

    def prepareDevice(self, loadEngine: bool = True) -> None:
        """Compile the model for its device, and put it there with its weights.

        Raises `OutOfMemoryException` if it computes on tiles and does not fit them.
        """
        program = self._program
        self._is_prepared = True
        is_costed = self._options.instrumentWithHardwareCycleCounter
        if is_costed and self._options.compileEngine and self._device.type is not DeviceType.Cpu:
            with popart_errors():
                program.program.tiles.program()
        _LOG.info("Graph compiled")
        self._is_loaded = False
        if loadEngine:
            self.loadEngineAndConnectStreams()

    def loadEngineAndConnectStreams(self) -> None:
        """Put the compiled model on its device, where `prepareDevice(False)` did not."""
        if self._compiled is None or not self._is_prepared:
            raise popart_exception("There is no compiled engine: call prepareDevice first")
        if not self._is_loaded:
            _LOG.info("Engine loaded")
            self._is_loaded = True

    def compileAndExport(self, filename: str | os.PathLike) -> None:
        """Compile the tile program and write it to a file that `loadExecutable` reads."""
        from tremula.ir.run.tile_cache import write_program  # loads slowly

        path = Path(filename).expanduser()
        path = path / f"{self.name}.tremula" if path.is_dir() else path
        path.parent.mkdir(parents=True, exist_ok=True)
        with popart_errors():
            write_program(path, self._program.program.tiles.program())

    def saveExecutable(self, path: str | os.PathLike, *_more: bool) -> None:
        """The same as `compileAndExport`."""
        self.compileAndExport(path)

    def loadExecutable(self, filename: str | os.PathLike) -> None:
        """Take a tile program from a file instead of compiling it."""
        from tremula.ir.run.tile_cache import read_program  # loads slowly

        if self._compiled is not None:
            raise popart_exception("loadExecutable comes before prepareDevice")
        with popart_errors():
            stored = read_program(Path(filename).expanduser())
        self._compiled = self._compile(stored)

    # -- running -----------------------------------------------------------------------------------

    @property
    def dataFlow(self) -> DataFlow:
        """How many batches a step takes, and what it returns."""
        return self._flow

    @property
    def replicationFactor(self) -> int:
        """How many replicas there are."""
        return self._repetition.n_replicas

    @property
    def accumulationFactor(self) -> int:
        """How many micro-batches of a replica make an update."""
        return self._repetition.n_accumulation

    def initAnchorArrays(self) -> dict[str, np.ndarray]:
        """Empty arrays for all anchors, in their shapes."""
        return {
            id: np.zeros(
                anchor_shape(self._flow.art(id), self.getInfo(id).shape(), self._repetition),
                self.getInfo(id).numpy_type(),
            )
            for id in self._flow.anchors()
        }

    def run(self, stepio: PyStepIO | PyStepIOCallback, debugName: str = "") -> None:
        """One step: `batchesPerStep` batches, each an update in training."""
        del debugName
        if self._compiled is None or not self._is_prepared:
            raise popart_exception("Must call prepareDevice before run")
        if self._device.type is DeviceType.OfflineIpu:
            raise popart_exception("An offline device runs nothing: it only compiles")
        self.loadEngineAndConnectStreams()
        compiled = self._compiled
        collector = Collector(self._flow, self._anchored, self._repetition, self.getInfo)
        rows = self._rows(stepio)
        with popart_errors():
            compiled.program.run(rows, collector.take(self._plan))
        collector.finish(compiled)
        collector.give(stepio)

    def _rows(self, stepio: PyStepIO | PyStepIOCallback) -> list[list[Tensor]]:
        mode = SyntheticDataMode(self._options.syntheticDataMode)
        if mode is SyntheticDataMode.Off:
            return micro_batches(stepio, self._inputs, self._repetition)
        generator = np.random.default_rng(self._seed)
        make: dict[SyntheticDataMode, Callable] = {
            SyntheticDataMode.Zeros: np.zeros,
            SyntheticDataMode.RandomNormal: generator.standard_normal,
            SyntheticDataMode.RandomUniform: generator.random,
        }
        return [
            [
                torch.from_numpy(np.asarray(make[mode](i.info.shape()))).to(i.dtype)
                for i in self._inputs
            ]
            for _ in range(self._repetition.n_micro_batches)
        ]

    # -- weights -----------------------------------------------------------------------------------

    def weightsFromHost(self) -> None:
        """Host → device."""
        self._program.to_device()

    def writeWeights(self, weightsIo: PyWeightsIO) -> None:
        """Take the host's values of weights from arrays; `weightsFromHost` sends them."""
        self._program.weights.write_from(weightsIo)

    def readWeights(self, weightsIo: PyWeightsIO) -> None:
        """Copy the host's values of weights to arrays; `weightsToHost` fetches them."""
        wants_states = any(id.startswith(STATE_PREFIXES) for id in weightsIo.weights)
        states = self._program.states() if wants_states and self._is_training else {}
        self._program.weights.read_into(weightsIo, states)

    def weightsToHost(self) -> None:
        """Device → host."""
        self._program.to_host()

    def copyDeviceWeightsToHost(self) -> None:
        """Another name of `weightsToHost`."""
        self.weightsToHost()

    def broadcastWeights(self, rootRank: int = 0) -> None:
        """Send the weights of one process to all; a session alone has them already."""
        if self._options.enableDistributedReplicatedGraphs:
            raise popart_exception(
                f"broadcastWeights({rootRank}) between processes is not supported: read the weights"
                " with readWeights, send them with torch.distributed, and use writeWeights"
            )

    def resetHostWeights(
        self,
        modelProtoOrFilename: Model,
        ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False,
    ) -> None:
        """Take the host's values of weights from a model; `weightsFromHost` sends them."""
        self._program.weights.reset(
            read_model(modelProtoOrFilename),
            ignores_others=ignoreWeightsInModelWithoutCorrespondingHostWeight,
        )

    def modelToHost(self, fn: str | os.PathLike) -> None:
        """Write the model with weights as they are on the device, and the optimiser's states."""
        self._program.to_host()
        hides = self._options.disableOptimizerStateTensorStreams
        states = {} if hides or not self._is_training else self._program.states()
        model = written_model(self._original, self._program.weights, states)
        Path(fn).write_bytes(model.SerializeToString())

    def updateExternallySavedTensorLocations(self, fromLocation: str, toLocation: str) -> None:
        """Weights that lie in one file are found in another from now on."""
        for tensor in self._original.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location" and entry.value == fromLocation:
                    entry.value = toLocation

    # -- random numbers ----------------------------------------------------------------------------

    def setRandomSeed(self, seedValue: int) -> None:
        """Restart the generators from a seed."""
        self._seed = int(seedValue)
        if self._compiled is not None:
            self._compiled.program.random.reseed(self._seed)

    def getRandomSeed(self) -> int:
        """The seed of random numbers."""
        return self._seed

    def getRNGState(self) -> list[int]:
        """The state of the generators."""
        return state_of(self._program.program.random)

    def setRNGState(self, rngValue: list[int]) -> None:
        """Continue from a state that `getRNGState` gave."""
        with popart_errors():
            restore(self._program.program.random, list(rngValue))

    # -- questions ---------------------------------------------------------------------------------

    def getInfo(self, id: str) -> TensorInfo:
        """Type and shape of any tensor."""
        if id in self._returned:
            return self._returned[id]
        kind = self._types.get(weight_of(id))
        if kind is not None and kind.is_static and kind.element:
            return TensorInfo(type_name(kind.element), kind.sizes())
        if id in self._anchored.of_optimiser:
            return TensorInfo(np.asarray(self._held(id)))
        raise popart_exception(f"TensorInfo for '{id}' not found: {suggest(id, self._types)}")

    @cached_property
    def _returned(self) -> dict[str, TensorInfo]:
        """Types of what the step returns."""
        gradients = [names.GRADIENT + id for id in self._plan.gradients]
        results = zip([*self._plan.wanted, *gradients], self._program.results, strict=True)
        return {id: self._info_of_result(id, value) for id, value in results}

    def _info_of_result(self, id: str, value: Tensor) -> TensorInfo:
        """As the step returns it; unsigned integers, which it computes as others, as declared."""
        kind = self._types.get(id)
        if kind is not None and kind.element and element_type(kind.element).held in UNSIGNED:
            return TensorInfo(type_name(kind.element), [int(n) for n in value.shape])
        return info_of_tensor(value)

    def _held(self, id: str) -> np.ndarray:
        return value_of_optimiser(id, self._program)

    def getAllTensorIds(self) -> list[str]:
        """The ids of all tensors of the model."""
        return list(self._imported.tensor_names)

    def getTensorIds(self) -> list[str]:
        """The ids of all tensors: of the model, and in training gradients, states and numbers."""
        result = self.getAllTensorIds()
        if self._loss is None:
            return result
        nodes = self._imported.module.graph.nodes
        known = differentiable(nodes, self._loss, self._types)
        gradients = [names.GRADIENT + id for id in result if id in known]
        program = self._program
        return [*result, *gradients, *program.states(), *optimiser_numbers(program)]

    def getSerializedGraph(self) -> bytes:
        """The graph as JSON."""
        return self._serializeIr().encode()

    def checkInplacingAmbiguity(self) -> None:
        """Has nothing to check: operations that write over inputs never change results."""

    def getCycleCount(self, id: str = "") -> int:
        """Cycles that one step takes on the machine, from the tile program."""
        del id
        if not self._options.instrumentWithHardwareCycleCounter:
            raise popart_exception(
                "SessionOption 'instrumentWithHardwareCycleCounter' must be set to True in order"
                " to measure cycle count"
            )
        program = self._program.program
        with popart_errors():
            return program.timing().total_cycles

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """Memory and cycles of the tile program as text."""
        from tremula.compiler.report.profile_summary import profile_summary  # slow to import

        del resetProfile
        with popart_errors():
            return profile_summary(self._program.program.report())

    def getReport(self) -> "Report":
        """The report of the tile program as `pva` opens it; the folder of autoReport keeps it."""
        from tremula.vision.pva.report import openReport  # slow to import

        folder = Path(self._options.engineOptions.get("autoReport.directory") or self._folder.name)
        with popart_errors():
            return openReport(self._program.program.save_report(folder, self.name))

    def save_report(self, folder: str | os.PathLike[str]) -> Path:
        """Write the report of the tile program for the analyser; the path of its file."""
        with popart_errors():
            return self._program.program.save_report(folder, self.name)

    @cached_property
    def _folder(self) -> tempfile.TemporaryDirectory:
        """Where reports are that nobody gave a folder for; it goes with the session."""
        return tempfile.TemporaryDirectory()

    def _serializeIr(self, format: IrSerializationFormat = IrSerializationFormat.JSON) -> str:
        del format
        step = self._program.program.step if self._is_training else None
        return serialised(
            self._model.proto.graph,
            self._types,
            self._plan.places,
            step,
            is_in_place=self._patterns.isPatternEnabled("InPlace"),
        )


class InferenceSession(_Session):
    """A model that is run."""

    def __init__(
        self,
        fnModel: Model,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "inference",
    ):
        super().__init__(fnModel, dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions, name)

    @classmethod
    def fromIr(cls, ir: "SessionSource", deviceInfo: DeviceInfo, name: str = "fromIr") -> object:
        """A session of a program that was written as graphs, with PopXL."""
        del name
        return ir.session_on(deviceInfo)


class SessionSource(Protocol):
    """A program that makes a session on a device."""

    def session_on(self, device: DeviceInfo) -> object: ...


class TrainingSession(_Session):
    """A model that is trained: `loss` is the id of a scalar, which the optimiser makes smaller."""

    def __init__(
        self,
        fnModel: Model,
        dataFlow: DataFlow,
        loss: str,
        optimizer: Optimizer,
        deviceInfo: DeviceInfo,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "training",
    ):
        if not isinstance(optimizer, Optimizer):
            raise popart_exception(f"optimizer must be a popart.Optimizer, got {optimizer!r}")
        super().__init__(
            fnModel,
            dataFlow,
            deviceInfo,
            inputShapeInfo,
            patterns,
            userOptions,
            name,
            loss,
            optimizer,
        )
        self._check_loss()

    def _check_loss(self) -> None:
        kind = self._types.get(self._plan.loss or "")
        if kind is not None and kind.is_static and any(n != 1 for n in kind.sizes()):
            raise popart_exception(
                f"'{self._plan.loss}' has shape {list(kind.sizes())}: reduce it, for example with"
                " identityloss. The loss must be a scalar tensor"
            )

    def updateOptimizerFromHost(self, optimizer: Optimizer) -> None:
        """Values of an optimiser that are not constant, to the device."""
        assert self._optimizer is not None, "training has an optimiser"
        self._optimizer.check_replacement(optimizer)
        self._optimizer = copy.deepcopy(optimizer)
        self._program.set_numbers(self._optimizer)

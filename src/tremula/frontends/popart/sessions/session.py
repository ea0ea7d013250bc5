"""InferenceSession and TrainingSession: a model on a device, compiled, run, read back.

Sessions have PopART's methods; the work is done by objects with one idea each: the planned model,
the engine that compiles it, its tensors, transfers of weights, and reports.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tremula.frontends.popart.data_flow import DataFlow, PyStepIO, PyStepIOCallback, PyWeightsIO
from tremula.frontends.popart.devices import DeviceInfo
from tremula.frontends.popart.enums import IrSerializationFormat
from tremula.frontends.popart.exceptions import popart_errors, popart_exception
from tremula.frontends.popart.optimisers.optimisers import Optimizer
from tremula.frontends.popart.options.options import SessionOptions
from tremula.frontends.popart.options.patterns import Patterns
from tremula.frontends.popart.sessions.collector import Collector
from tremula.frontends.popart.sessions.engine import SessionEngine
from tremula.frontends.popart.sessions.planned_model import PlannedModel
from tremula.frontends.popart.sessions.program import SessionProgram
from tremula.frontends.popart.sessions.reports import SessionReports
from tremula.frontends.popart.sessions.setup import Model, SessionSetup, checked_setup
from tremula.frontends.popart.sessions.tensors import SessionTensors
from tremula.frontends.popart.sessions.weight_transfers import WeightTransfers
from tremula.frontends.popart.tensor_info import InputShapeInfo, TensorInfo

if TYPE_CHECKING:  # lazy: importing the tile compiler is slow
    from tremula.vision.pva.report import Report


class _Session:
    """What inference and training share."""

    def __init__(self, setup: SessionSetup):
        self._setup, self.name = setup, setup.name
        with popart_errors():
            self._planned = PlannedModel(setup)
        self._engine = SessionEngine(self._planned)
        self._tensors = SessionTensors(self._engine)
        self._weights = WeightTransfers(self._engine)
        self._reports = SessionReports(self._engine)

    # -- compiling ---------------------------------------------------------------------------------

    @property
    def _program(self) -> SessionProgram:
        """The compiled model."""
        return self._engine.program

    def prepareDevice(self, loadEngine: bool = True) -> None:
        """Compile the model for its device, and put it there with its weights.

        Raises `OutOfMemoryException` if it computes on tiles and does not fit them.
        """
        self._engine.prepare(loads=loadEngine)

    def loadEngineAndConnectStreams(self) -> None:
        """Put the compiled model on its device, where `prepareDevice(False)` did not."""
        self._engine.load()

    def compileAndExport(self, filename: str | os.PathLike) -> None:
        """Compile the tile program and write it to a file that `loadExecutable` reads."""
        self._engine.write(filename)

    def saveExecutable(self, path: str | os.PathLike, *_more: bool) -> None:
        """Another name of `compileAndExport`."""
        self.compileAndExport(path)

    def loadExecutable(self, filename: str | os.PathLike) -> None:
        """Take a tile program from a file instead of compiling it."""
        self._engine.read(filename)

    # -- running -----------------------------------------------------------------------------------

    @property
    def dataFlow(self) -> DataFlow:
        """How many batches a step takes, and what it returns."""
        return self._setup.flow

    @property
    def replicationFactor(self) -> int:
        """How many replicas there are."""
        return self._setup.repetition.n_replicas

    @property
    def accumulationFactor(self) -> int:
        """How many micro-batches of a replica make an update."""
        return self._setup.repetition.n_accumulation

    def initAnchorArrays(self) -> dict[str, np.ndarray]:
        """Empty arrays for all anchors, in their shapes."""
        return self._tensors.anchor_arrays()

    def run(self, stepio: PyStepIO | PyStepIOCallback, debugName: str = "") -> None:
        """One step: `batchesPerStep` batches, each an update in training."""
        del debugName
        self._engine.check_can_run()
        self._engine.load()
        setup, planned, program = self._setup, self._planned, self._engine.program
        collector = Collector(setup.flow, planned.anchors, setup.repetition, self.getInfo)
        rows = self._engine.inputs_of(stepio)
        with popart_errors():
            program.program.run(rows, collector.take(planned.plan))
        collector.finish(program)
        collector.give(stepio)

    # -- weights -----------------------------------------------------------------------------------

    def weightsFromHost(self) -> None:
        """Host → device."""
        self._weights.to_device()

    def writeWeights(self, weightsIo: PyWeightsIO) -> None:
        """Take the host's values of weights from arrays; `weightsFromHost` sends them."""
        self._weights.from_arrays(weightsIo)

    def readWeights(self, weightsIo: PyWeightsIO) -> None:
        """Copy the host's values of weights to arrays; `weightsToHost` fetches them."""
        self._weights.to_arrays(weightsIo)

    def weightsToHost(self) -> None:
        """Device → host."""
        self._weights.to_host()

    def copyDeviceWeightsToHost(self) -> None:
        """Another name of `weightsToHost`."""
        self.weightsToHost()

    def broadcastWeights(self, rootRank: int = 0) -> None:
        """Send the weights of one process to all; a session alone has them already."""
        self._weights.check_broadcast(rootRank)

    def resetHostWeights(
        self,
        modelProtoOrFilename: Model,
        ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False,
    ) -> None:
        """Take the host's values of weights from a model; `weightsFromHost` sends them."""
        self._weights.from_model(
            modelProtoOrFilename,
            ignores_others=ignoreWeightsInModelWithoutCorrespondingHostWeight,
        )

    def modelToHost(self, fn: str | os.PathLike) -> None:
        """Write the model with weights as they are on the device, and the optimiser's states."""
        self._weights.to_file(fn)

    def updateExternallySavedTensorLocations(self, fromLocation: str, toLocation: str) -> None:
        """Weights that are stored in one file are read from another from now on."""
        self._weights.move_external(fromLocation, toLocation)

    # -- random numbers ----------------------------------------------------------------------------

    def setRandomSeed(self, seedValue: int) -> None:
        """Restart the generators from a seed."""
        self._engine.reseed(int(seedValue))

    def getRandomSeed(self) -> int:
        """The seed of random numbers."""
        return self._engine.seed

    def getRNGState(self) -> list[int]:
        """The state of the generators."""
        return self._engine.random_state

    def setRNGState(self, rngValue: list[int]) -> None:
        """Continue from a state that `getRNGState` returned."""
        self._engine.random_state = list(rngValue)

    # -- questions ---------------------------------------------------------------------------------

    def getInfo(self, id: str) -> TensorInfo:
        """Type and shape of any tensor."""
        return self._tensors.info(id)

    def getAllTensorIds(self) -> list[str]:
        """The ids of all tensors of the model."""
        return self._tensors.of_model()

    def getTensorIds(self) -> list[str]:
        """The ids of all tensors: of the model, and in training gradients, states and numbers."""
        return self._tensors.ids()

    def getSerializedGraph(self) -> bytes:
        """The graph as JSON."""
        return self._serializeIr().encode()

    def checkInplacingAmbiguity(self) -> None:
        """Has nothing to check: operations that write over inputs never change results."""

    def getCycleCount(self, id: str = "") -> int:
        """Cycles that one step takes on the machine, from the tile program."""
        del id
        return self._reports.cycles()

    def getCycleInterval(self) -> tuple[int, int]:
        """Cycles of one step on real hardware, nine times in ten; an addition of Tremula."""
        return self._reports.cycle_interval()

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """Memory and cycles of the tile program as text."""
        del resetProfile
        return self._reports.summary()

    def getReport(self) -> "Report":
        """The report of the tile program as `pva` opens it; the folder of autoReport keeps it."""
        return self._reports.open()

    def save_report(self, folder: str | os.PathLike[str]) -> Path:
        """Write the report of the tile program for the analyser; the path of its file."""
        return self._reports.save(folder)

    def _serializeIr(self, format: IrSerializationFormat = IrSerializationFormat.JSON) -> str:
        del format
        step = self._engine.program.program.step if self._setup.is_training else None
        return self._planned.as_json(step)


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
        super().__init__(
            checked_setup(
                fnModel, dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions, name
            )
        )

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
            checked_setup(
                fnModel,
                dataFlow,
                deviceInfo,
                inputShapeInfo,
                patterns,
                userOptions,
                name,
                loss=loss,
                optimizer=optimizer,
            )
        )
        self._planned.check_loss()

    def updateOptimizerFromHost(self, optimizer: Optimizer) -> None:
        """Values of an optimiser that are not constant, to the device."""
        self._engine.replace_optimizer(optimizer)

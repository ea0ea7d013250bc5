"""A session's compiled program: compiled at first use, loaded, written to files, its seed."""

import copy
import os
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from tremula.frontends.popart.data_flow import PyStepIO, PyStepIOCallback
from tremula.frontends.popart.enums import DeviceType, SyntheticDataMode
from tremula.frontends.popart.exceptions import popart_errors, popart_exception
from tremula.frontends.popart.logging import getLogger
from tremula.frontends.popart.optimisers.optimisers import Optimizer
from tremula.frontends.popart.sessions.buffers import micro_batches, synthetic_micro_batches
from tremula.frontends.popart.sessions.planned_model import PlannedModel
from tremula.frontends.popart.sessions.program import SessionProgram
from tremula.frontends.popart.sessions.settings import step_settings
from tremula.ir.run.generators import new_seed, restore, state_of

if TYPE_CHECKING:  # lazy: importing the tile compiler is slow
    from tremula.ir.run.tile_cache import StoredTileProgram

_LOG = getLogger("session")


class SessionEngine:
    """The compiled program of a model, on its device."""

    def __init__(self, planned: PlannedModel):
        self.planned, self.setup = planned, planned.setup
        self.seed = new_seed()
        self._optimizer = self.setup.optimizer
        self._compiled: SessionProgram | None = None
        self._is_prepared = self._is_loaded = False

    # -- compiling ---------------------------------------------------------------------------------

    @property
    def program(self) -> SessionProgram:
        """The compiled model; it is compiled now if it was not yet."""
        if self._compiled is None:
            self._compiled = self._compile(None)
        return self._compiled

    def _compile(self, stored: "StoredTileProgram | None") -> SessionProgram:
        planned, setup = self.planned, self.setup
        program = SessionProgram(
            planned.model,
            planned.imported,
            planned.inputs,
            planned.plan,
            self._optimizer,
            setup.options,
        )
        settings = step_settings(
            setup.options, setup.device, setup.repetition, program.groupings, self.seed
        )
        with popart_errors():
            program.compile(settings, setup.device, setup.name, stored)
        return program

    def prepare(self, *, loads: bool) -> None:
        """Compile, also for tiles where cycles are counted; then load."""
        program, options = self.program, self.setup.options
        self._is_prepared = True
        is_costed = options.instrumentWithHardwareCycleCounter and options.compileEngine
        if is_costed and self.setup.device.type is not DeviceType.Cpu:
            with popart_errors():
                program.program.tiles.program()
        _LOG.info("Graph compiled")
        self._is_loaded = False
        if loads:
            self.load()

    def load(self) -> None:
        """Put the prepared program on its device, unless it is there."""
        if not self._is_prepared:
            raise popart_exception("There is no compiled engine: call prepareDevice first")
        if not self._is_loaded:
            _LOG.info("Engine loaded")
            self._is_loaded = True

    def check_can_run(self) -> None:
        """Raise for a program that was not prepared, or a device that only compiles."""
        if not self._is_prepared:
            raise popart_exception("Must call prepareDevice before run")
        if self.setup.device.type is DeviceType.OfflineIpu:
            raise popart_exception("An offline device runs nothing: it only compiles")

    # -- files -------------------------------------------------------------------------------------

    def write(self, filename: str | os.PathLike) -> None:
        """Write the tile program to a file, or to one of the session's name in a folder."""
        from tremula.ir.run.tile_cache import write_program  # lazy: slow to import

        path = Path(filename).expanduser()
        path = path / f"{self.setup.name}.tremula" if path.is_dir() else path
        path.parent.mkdir(parents=True, exist_ok=True)
        with popart_errors():
            write_program(path, self.program.program.tiles.program_with_key())

    def read(self, filename: str | os.PathLike) -> None:
        """Take the tile program from a file."""
        from tremula.ir.run.tile_cache import read_program  # lazy: slow to import

        if self._compiled is not None:
            raise popart_exception("loadExecutable comes before prepareDevice")
        with popart_errors():
            stored = read_program(Path(filename).expanduser())
        self._compiled = self._compile(stored)

    # -- inputs, random numbers, the optimiser -----------------------------------------------------

    def inputs_of(self, stepio: PyStepIO | PyStepIOCallback) -> list[list[Tensor]]:
        """The inputs of each micro-batch: the script's, or synthetic ones."""
        mode = SyntheticDataMode(self.setup.options.syntheticDataMode)
        inputs, repetition = self.planned.inputs, self.setup.repetition
        if mode is SyntheticDataMode.Off:
            return micro_batches(stepio, inputs, repetition)
        return synthetic_micro_batches(mode, inputs, repetition, self.seed)

    def reseed(self, seed: int) -> None:
        """Restart the generators from a seed."""
        self.seed = seed
        if self._compiled is not None:
            self._compiled.program.random.reseed(seed)

    @property
    def random_state(self) -> list[int]:
        """The state of the generators."""
        return state_of(self.program.program.random)

    @random_state.setter
    def random_state(self, state: list[int]) -> None:
        with popart_errors():
            restore(self.program.program.random, state)

    def replace_optimizer(self, optimizer: Optimizer) -> None:
        """Other values of the variable numbers, to the device."""
        assert self._optimizer is not None, "training has an optimiser"
        self._optimizer.check_replacement(optimizer)
        self._optimizer = copy.deepcopy(optimizer)
        self.program.set_numbers(self._optimizer)

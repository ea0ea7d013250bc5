"""A compiled step as every front end uses it: called, timed, reported on and saved.

arguments ─► rows ─► StepProgram.run ─► results of each micro-batch ─► what the caller gets
(front end)            │ moves inputs to the device, holds the lease, enters random state
└─ report(), save_report(), timing(): from the tile program
"""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from tremula.base.storage.atomic_file import write_text
from tremula.frontends.shared.wanted_report import leave_report
from tremula.ir.run.compiled_step import CompiledStep, StepSettings, StepToCompile, compile_step
from tremula.ir.run.generators import DeviceRandom
from tremula.ir.run.performance import CallTiming
from tremula.ir.run.session import Give, Rows, StepSession
from tremula.ir.step import CapturedStep

if TYPE_CHECKING:  # lazy: importing the tile compiler is slow
    from tremula.compiler.executable.executable import Executable
    from tremula.compiler.report.report import ProgramReport
    from tremula.ir.run.tile_cache import StoredTileProgram
    from tremula.ir.run.tile_program import TileProgram

SUMMARY_FILE = "profile.txt"


class AttachedDevice(Protocol):
    """A device that is busy while a call runs, and raises the faults of its machine."""

    def running(self, tiles: "TileProgram | None") -> AbstractContextManager[None]: ...


class StepProgram:
    """A step compiled for fixed shapes, with its weights on a device."""

    def __init__(
        self,
        compiled: CompiledStep,
        device: AttachedDevice | None = None,
        report_name: str | None = None,
    ):
        self.compiled = compiled
        self.device = device
        self.report_name = report_name  # of the report that the first call leaves
        self.n_calls = 0
        self._seconds_to_open = 0.0

    def open(self) -> None:
        """Open the session now, not at its first use, so that what can fail there fails here."""
        began, of_tiles = time.perf_counter(), self.tiles.seconds
        _ = self.session
        self._seconds_to_open = time.perf_counter() - began - (self.tiles.seconds - of_tiles)

    @property
    def compile_seconds(self) -> float:
        """The time of the compilation, with that of the tile program if it has been compiled."""
        return self.compiled.seconds + self._seconds_to_open + self.tiles.seconds

    @property
    def step(self) -> CapturedStep:
        return self.compiled.step

    @property
    def settings(self) -> StepSettings:
        return self.compiled.settings

    @property
    def session(self) -> StepSession:
        return self.compiled.session

    @property
    def random(self) -> DeviceRandom:
        return self.compiled.random

    @property
    def n_replicas(self) -> int:
        return self.settings.repetition.n_replicas

    # -- calls -------------------------------------------------------------------------------------

    def run(self, rows: Rows, receive: Give) -> None:
        """Run one call: `rows` are the inputs of its micro-batches.

        `receive(number, outputs)` gets the outputs of each micro-batch. Inputs that the step writes
        are written in the caller's tensors, too.
        """
        moved = [self.on_device(row) for row in rows]
        lease = nullcontext() if self.device is None else self.device.running(self.tiles)
        with lease, self.random.drawing():
            self.session.run(moved, receive)
        if self.compiled.writes_inputs:
            for row, written in zip(rows, moved, strict=True):
                write_back(row, written)
        self.n_calls += 1
        if self.n_calls == 1 and self.report_name is not None:
            name, options = self.report_name, self.settings.tiles.engine_options
            leave_report(name, options, lambda folder: self.save_report(folder, name, rows))

    def call(self, rows: Rows) -> list[list[Tensor]]:
        """Run one call; the outputs of each of its micro-batches."""
        results: list[list[Tensor]] = [[] for _ in rows]
        self.run(rows, results.__setitem__)
        return results

    def on_device(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Inputs where the session reads them: the tensors themselves, or copies."""
        device = self.session.input_device
        return tensors if device is None else [tensor.to(device) for tensor in tensors]

    # -- weights -----------------------------------------------------------------------------------

    def write_weights(self, parameters: list[Tensor], buffers: list[Tensor]) -> None:
        """Host → device."""
        self.compiled.write_weights(parameters, buffers)

    def read_weights(self) -> tuple[list[Tensor], list[Tensor]]:
        """Device → host: parameters, and the buffers of the first replica."""
        return self.compiled.read_weights()

    # -- what the machine takes for a call ---------------------------------------------------------

    @property
    def tiles(self) -> "TileProgram":
        """The program for tiles, compiled when something asks for it."""
        return self.compiled.tiles

    @property
    def executable(self) -> "Executable":
        """The compiled tile program; compiled now if it was not yet."""
        return self.tiles.executable

    def timing(self) -> CallTiming:
        """Cycles and transfers of a call on the machine."""
        has_run = self.settings.runs_on_tiles and self.n_calls > 0
        return self.tiles.timing(has_run=has_run)

    def report(self, rows: Rows | None = None) -> "ProgramReport":
        """Cycles and memory of a call; where cycles depend on data, of one with these inputs.

        Such a call runs on tiles with the weights of now, and with zeros where `rows` is None; the
        state of the program does not change.
        """
        return self.tiles.report(rows, self.session)

    def save_report(
        self, folder: str | os.PathLike[str], model_name: str, rows: Rows | None = None
    ) -> Path:
        """Write the report for the analyser, and its summary as text; the path of the report."""
        folder = Path(folder)
        from tremula.compiler.report.profile_summary import profile_summary  # slow to import
        from tremula.vision.report.write import write_report

        report = self.report(rows)
        folder.mkdir(parents=True, exist_ok=True)
        write_text((folder / SUMMARY_FILE), profile_summary(report))
        return Path(write_report(folder, self.executable, report, extra={"model": model_name}))


def compile_program(
    request: StepToCompile,
    settings: StepSettings,
    *,
    stored: "StoredTileProgram | None" = None,
    device: AttachedDevice | None = None,
    report_name: str | None = None,
) -> StepProgram:
    """Compile a step; `stored` is its tile program, if a file had it.

    `StepProgram.open` puts it on its device; otherwise the first use of its session does. With a
    `report_name`, the first call leaves a report where the engine's options ask for reports.
    """
    return StepProgram(compile_step(request, settings, stored), device, report_name)


def write_back(originals: Iterable[Tensor], written: Iterable[Tensor]) -> None:
    """Copy what a step did to its inputs into the tensors they were made from."""
    with torch.no_grad():
        for original, tensor in zip(originals, written, strict=True):
            if original is not tensor:
                original.copy_(tensor)

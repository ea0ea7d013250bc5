"""The tile program of a compiled model: built, compiled and loaded when something asks for it."""

import sys
import time
from collections.abc import Callable
from typing import IO

from tremula.frontends.torch.exceptions import createPoptorchError
from tremula.frontends.torch.options import Options
from tremula.frontends.torch.placement import Placement
from tremula.ir.errors import UnsupportedOperations
from tremula.ir.lowering.build import BuiltProgram, Schedule, build_tile_program
from tremula.ir.lowering.tiles import LoweringOptions
from tremula.ir.passes import TILE_PASSES, apply
from tremula.ir.session import Repetition, TileSession
from tremula.ir.settings import HostSettings
from tremula.ir.step import CapturedStep
from tremula.poplar.target import Device, IPUModel
from tremula.runtime.engine import Engine


class TileProgram:
    """Compiles at most once; a cycle count, a report, a latency or tile execution ask for it."""

    def __init__(
        self,
        step: CapturedStep,
        placement: Placement,
        repetition: Repetition,
        options: Options,
        settings: HostSettings,
    ):
        self._captured = step
        self.placement = placement
        self.repetition = repetition
        self.options = options
        self.settings = settings
        self.seconds = 0.0
        self._step: CapturedStep | None = None
        self._built: BuiltProgram | None = None
        self._engine: Engine | None = None

    @property
    def is_compiled(self) -> bool:
        return self._engine is not None

    def engine(self) -> Engine:
        """The loaded engine; compiles first if need be, with a progress bar."""
        if self._engine is None:
            began = time.perf_counter()
            with ProgressBar(
                "Graph compilation", self.options.show_compilation_progress_bar
            ) as bar:
                self._engine = self._compile(bar)
            self.seconds = time.perf_counter() - began
        return self._engine

    def session(self) -> TileSession:
        engine = self.engine()
        return TileSession(self._step, self._built, engine, self.repetition)

    def _compile(self, bar: "ProgressBar") -> Engine:
        try:
            step = apply(self._captured, TILE_PASSES)
            device = self.device()
            built = build_tile_program(
                step, device.target, self._schedule(), self._lowering_options(), bar.part(0, 60)
            )
        except UnsupportedOperations as error:
            raise createPoptorchError(str(error)) from error
        engine = Engine(built.graph, [built.program], self._engine_options(), bar.part(60, 95))
        engine.load(device)
        self._step, self._built = step, built
        return engine

    def device(self) -> Device:
        n_chips = max(self.placement.ipus, default=0) + 1
        n_ipus = n_chips * self.repetition.n_replicas
        return IPUModel(self.settings.chip, n_ipus=n_ipus).create_device()

    def _schedule(self) -> Schedule:
        repetition = self.repetition
        return Schedule(
            repetition.n_iterations,
            repetition.n_accumulation,
            repetition.n_replicas,
            repetition.gradient_scale,
            self.placement.ipus,
        )

    def _lowering_options(self) -> LoweringOptions:
        memory = dict(self.options.available_memory_proportion)
        return LoweringOptions(available_memory=memory, is_training=self._captured.training)

    def _engine_options(self) -> dict:
        return {}


class ProgressBar:
    """Per cent done on one line of standard error; silent if that is no terminal."""

    def __init__(self, title: str, is_wanted: bool, stream: IO[str] | None = None):
        self.title = title
        self.stream = stream or sys.stderr
        self.is_shown = is_wanted and self.stream.isatty()
        self._last = -1

    def __enter__(self) -> "ProgressBar":
        self.show(0)
        return self

    def __exit__(self, failed: object, *_rest: object) -> None:
        if failed is None:
            self.show(100)
        if self.is_shown:
            self.stream.write("\n")

    def part(self, begin: int, end: int) -> Callable[[int, int], None]:
        """A progress function whose whole is the share from `begin` to `end` per cent."""

        def progress(done: int, total: int) -> None:
            self.show(begin + (end - begin) * done // max(total, 1))

        return progress

    def show(self, percent: int) -> None:
        if self.is_shown and percent != self._last:
            self._last = percent
            self.stream.write(f"\r{self.title}: {percent:3d}%|{'█' * (percent // 5):20s}|")
            self.stream.flush()

"""The tile program of a compiled model: built, compiled and loaded when something asks for it."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import IO

import torch

from tremula.base.options import parse_options
from tremula.base.tracing import POPTORCH, span
from tremula.compiler.compile import compile_graph
from tremula.compiler.executable.executable import Executable
from tremula.frontends.poptorch.exceptions import poptorch_errors
from tremula.frontends.poptorch.executor.placement import Placement, machine_of
from tremula.frontends.poptorch.executor.replica_weights import GroupedTileSession, Grouping
from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.options.not_modelled import not_modelled
from tremula.frontends.poptorch.options.options import Options
from tremula.frontends.poptorch.options.strategies import PipelinedExecution
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.lowering.tiles import LoweringOptions
from tremula.ir.passes import SPELLING_PASSES, apply
from tremula.ir.passes.recompute import recompute_between_checkpoints, recompute_stages
from tremula.ir.run.performance import CallTiming, time_call
from tremula.ir.run.session import Repetition, TileSession
from tremula.ir.run.tile_cache import ProgramCache, StoredTileProgram, can_be_kept, program_key
from tremula.ir.settings import HostSettings
from tremula.ir.step import INPUT, CapturedStep
from tremula.poplar.control import set_stochastic_rounding
from tremula.poplar.programs import Sequence
from tremula.poplar.target import Device, IPUModel
from tremula.runtime.clock import Clock
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
        *,
        seed: int = 0,
        groupings: Mapping[str, Grouping] | None = None,
    ):
        self.groupings = groupings or {}
        self._captured = step
        self.placement = placement
        self.repetition = repetition
        self.options = options
        self.settings = settings
        self.machine = machine_of(options, settings.chip)
        self.seed = seed
        self.seconds = 0.0
        self.stored: StoredTileProgram | None = None  # given by a file, or compiled
        self._engine: Engine | None = None
        self._timing: CallTiming | None = None

    @property
    def to_save(self) -> StoredTileProgram | None:
        """The program for a file, if it is compiled and all of it can be written."""
        return self.stored if can_be_kept(self._captured) else None

    def offer(self, stored: StoredTileProgram | None) -> None:
        """Use a program from a file, if it is the one that would be compiled."""
        if stored is None:
            return
        if stored.key != self._key():
            LOGGER.warning("The saved program was made from another model; this one is compiled.")
            return
        self.stored = stored

    def program(self) -> StoredTileProgram:
        """The compiled program: given, found in the cache, or compiled now, with a progress bar."""
        if self.stored is None:
            began = time.perf_counter()
            is_shown = self.options.show_compilation_progress_bar
            progress = ProgressBar("Graph compilation", is_shown)
            with poptorch_errors(), span(POPTORCH, "compile tile program"), progress as bar:
                self.stored = self._find_or_compile(bar)
            self.seconds = time.perf_counter() - began
        return self.stored

    def engine(self) -> Engine:
        """The program with its kernels and memory, ready to run."""
        if self._engine is None:
            executable = self.program().executable
            with poptorch_errors():
                self._engine = self._new_engine(executable)
        return self._engine

    def session(self) -> TileSession:
        parts = self._captured, self.program(), self.engine(), self.repetition
        return GroupedTileSession(*parts, self.groupings) if self.groupings else TileSession(*parts)

    def timing(self, *, has_run: bool) -> CallTiming:
        """What one call takes on the machine; `has_run` if this engine ran since it was loaded."""
        if self._timing is None:
            executable = self.program().executable
            clock = Clock(executable)
            if clock.needs_count.any():
                clock.take_counts(self._counting_engine(has_run).clock)
            self._timing = time_call(executable, clock)
        return self._timing

    def _counting_engine(self, has_run: bool) -> Engine:
        """An engine that ran: some codelets know their cycles only then. Any data will do."""
        if has_run:
            return self.engine()
        engine = self._new_engine(self.program().executable)
        self._run_on_zeros(engine)
        return engine

    def _new_engine(self, executable: Executable) -> Engine:
        """Reports are the model's: its own engine writes none beside them."""
        options = self._engine_options()
        return Engine(executable, options=options, writes_reports=False).load(self.device())

    def _run_on_zeros(self, engine: Engine) -> None:
        placeholders = zip(self._captured.inputs, self._captured.placeholders(), strict=True)
        values = [node.meta["val"] for slot, node in placeholders if slot.kind == INPUT]
        inputs = [torch.zeros(tuple(v.shape), dtype=v.dtype) for v in values]
        session = TileSession(self._captured, self.program(), engine, self.repetition)
        session.run([inputs] * self.repetition.n_micro_batches, lambda *_: None)

    def _find_or_compile(self, bar: "ProgressBar") -> StoredTileProgram:
        choices = self.options._Popart.options
        is_wanted = choices.get("enableEngineCaching", False) and "cachePath" in choices
        is_kept = is_wanted and can_be_kept(self._captured)
        cache = ProgramCache(choices["cachePath"]) if is_kept else None
        stored = None if cache is None else cache.find(self._key())
        if stored is None:
            stored = self._compile(bar)
            if cache is not None:
                cache.keep(stored)
        return stored

    def _compile(self, bar: "ProgressBar") -> StoredTileProgram:
        if unfollowed := not_modelled(self.options):
            LOGGER.warning(
                "The tile program does not model: %s. Results are the same; its memory and cycles"
                " are those of tensors that stay on the chips.",
                "; ".join(unfollowed),
            )
        step = apply(self._captured, SPELLING_PASSES)
        step = recompute_between_checkpoints(step, self._schedule().stage_of_block)
        step = recompute_stages(step, self._recomputed_stages())
        with span(POPTORCH, "lower to tiles"):
            built = build_tile_program(
                step,
                self.device().target,
                self._schedule(),
                self._lowering_options(),
                bar.part(0, 60),
            )
        program = Sequence()
        if self._lowering_options().rounds_stochastically:
            set_stochastic_rounding(built.graph, program, True)
        program.add(built.program)
        with span(POPTORCH, "compile graph"):
            engine_options = self._engine_options()
            progress = bar.part(60, 95)
            executable = compile_graph(built.graph, [program], engine_options, progress)
        return StoredTileProgram.of(self._key(), executable, built)

    def _key(self) -> str:
        return program_key(
            self._captured,
            self.machine,
            self._schedule(),
            self._lowering_options(),
            self._recomputed_stages(),
            {k: v for k, v in self._engine_options().items() if k != "tremula.seed"},
        )

    def device(self) -> Device:
        n_chips = max(self.placement.ipus, default=0) + 1
        n_ipus = n_chips * self.repetition.n_replicas
        chip, n_tiles = self.machine
        return IPUModel(chip, n_ipus, n_tiles).create_device()

    def _schedule(self) -> Schedule:
        repetition = self.repetition
        return Schedule(
            repetition.n_iterations,
            repetition.n_accumulation,
            repetition.n_replicas,
            repetition.gradient_scale,
            self.placement.ipus,
            self.placement.pipeline_stages if self._is_pipeline else (),
            tuple(
                (name, grouping.size, grouping.stride(repetition.n_replicas))
                for name, grouping in self.groupings.items()
            ),
        )

    def _lowering_options(self) -> LoweringOptions:
        return LoweringOptions(
            partials_type=self.options._Popart.options.get("partialsTypeMatMuls"),
            available_memory=dict(self.options.available_memory_proportion),
            is_training=self._captured.training,
            rounds_stochastically=bool(
                self.options._Popart.options.get("enableStochasticRounding", False)
            ),
            least_off_chip_state=self.options.TensorLocations.least_off_chip_state,
            has_synthetic_data=self.options._Popart.options.get("syntheticDataMode", 0) != 0,
            checks_indices=parse_options(self._engine_options()).flag("debug.strict"),
        )

    def _recomputed_stages(self) -> tuple[int, ...]:
        """The stage of each block, if stages are computed again for the backward pass.

        As PopTorch does by default in a pipeline; the option autoRecomputation 0 keeps all values.
        """
        is_off = self.options._Popart.options.get("autoRecomputation") == 0
        return self.placement.pipeline_stages if self._is_pipeline and not is_off else ()

    @property
    def _is_pipeline(self) -> bool:
        return isinstance(self.options._execution_strategy, PipelinedExecution)

    def _engine_options(self) -> dict:
        """What the script gave; reports are written by the model, not by its engine."""
        choices = self.options._Popart.options
        given = choices.get("engineOptions", {})
        checks = choices.get("enableFloatingPointChecks", False)
        return {
            **{k: v for k, v in given.items() if not k.startswith("autoReport.")},
            "tremula.seed": self.seed,
            "debug.floatPointOpException": checks,
        }


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

"""The tile program of a step: built, compiled and loaded when something asks for it."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from tremula.base.options import parse_options
from tremula.base.passes import garbage_collected_later
from tremula.base.processes import small_pages
from tremula.base.tracing import COMPILATION, span
from tremula.ir.group_values import GroupValues
from tremula.ir.lowering.options import LoweringOptions
from tremula.ir.lowering.program.schedule import Schedule
from tremula.ir.passes import apply, tile_passes
from tremula.ir.passes.shard_update import Shards
from tremula.ir.repetition import Repetition
from tremula.ir.run.performance import CallTiming, time_call
from tremula.ir.run.progress import ProgressBar
from tremula.ir.run.replica_groups import GroupedTileSession
from tremula.ir.run.session import Rows, StepSession, TileSession, copy_state
from tremula.ir.run.tile_settings import TileSettings
from tremula.ir.step import INPUT, PARAMETER, STATE, CapturedStep

if TYPE_CHECKING:  # lazy: importing the tile compiler is slow
    from tremula.compiler.compile import Progress
    from tremula.compiler.executable.executable import Executable
    from tremula.compiler.report.report import ProgramReport
    from tremula.ir.lowering.program.schedule import BuiltProgram
    from tremula.ir.run.tile_cache import StoredTileProgram
    from tremula.poplar.programs import Sequence
    from tremula.poplar.target import Device
    from tremula.runtime.engine import Engine

__all__ = ["TileProgram", "TileSettings"]


class TileProgram:
    """Compiled at most once: for a cycle count, a report, a latency or execution on tiles."""

    def __init__(
        self,
        step: CapturedStep,
        schedule: Schedule,
        repetition: Repetition,
        settings: TileSettings,
        *,
        seed: int = 0,
        groupings: Mapping[str, GroupValues] | None = None,
    ):
        self._captured = step
        self.schedule = schedule
        self.repetition = repetition
        self.settings = settings
        self.seed = seed
        self.groupings = groupings or {}
        self.seconds = 0.0
        self.stored: StoredTileProgram | None = None  # read from a file, or compiled
        self._engine: Engine | None = None
        self._timing: CallTiming | None = None

    # -- what others ask for -----------------------------------------------------------------------

    @property
    def to_save(self) -> "StoredTileProgram | None":
        """The program for a file, if it is compiled and all of it can be written."""
        from tremula.ir.run.tile_cache import can_be_kept

        if self.stored is None or not can_be_kept(self._captured):
            return None
        return self.program_with_key()

    def program_with_key(self) -> "StoredTileProgram":
        """The program for a file; it is compiled if it was not yet."""
        stored = self.program()
        if not stored.key:
            stored = self.stored = stored.with_key(self.key)
        return stored

    def offer(self, stored: "StoredTileProgram") -> None:
        """Use a program from a file, if it is the one that would be compiled."""
        if stored.key != self.key:
            self.settings.warn(
                "The saved program was made from another model; this one is compiled."
            )
            return
        self.stored = stored

    def program(self) -> "StoredTileProgram":
        """The compiled program: given, found in the cache, or compiled now, with a progress bar."""
        if self.stored is None:
            began = time.perf_counter()
            progress = ProgressBar("Graph compilation", self.settings.shows_progress)
            with span(COMPILATION, "compile tile program"), progress as bar:
                self.stored = self._find_or_compile(bar)
            self.seconds = time.perf_counter() - began
        return self.stored

    def engine(self) -> "Engine":
        """The program with its kernels and memory, ready to run."""
        if self._engine is None:
            self._engine = self._new_engine(self.program().executable)
        return self._engine

    def session(self) -> TileSession:
        return self._session_on(self.engine())

    def _session_on(self, engine: "Engine") -> TileSession:
        parts = self._captured, self.program(), engine, self.repetition
        return GroupedTileSession(*parts, self.groupings) if self.groupings else TileSession(*parts)

    @property
    def executable(self) -> "Executable":
        """What the compiler made of the step; compiled now if it was not yet."""
        return self.program().executable

    def report(
        self, rows: Rows | None = None, weights_of: StepSession | None = None
    ) -> "ProgramReport":
        """Cycles and memory of one call.

        Where cycles depend on data, the call runs once on a separate engine: with the weights of
        `weights_of`, and with `rows`, the inputs of all micro-batches, or zeros.
        """
        from tremula.runtime.forecast import forecast_or_run

        return forecast_or_run(
            self.executable, lambda: self.engine_after_call(rows, weights_of).report()
        )

    def timing(self, *, has_run: bool) -> CallTiming:
        """What one call takes on the machine; `has_run` if this engine ran since it was loaded."""
        from tremula.runtime.clock import Clock

        if self._timing is None:
            executable = self.program().executable
            clock = Clock(executable)
            if clock.needs_count.any():
                clock.take_counts(self._counting_engine(has_run).clock)
            self._timing = time_call(executable, clock)
        return self._timing

    def device(self) -> "Device":
        from tremula.poplar.target import IPUModel

        n_ipus = self.schedule.n_chips * self.repetition.n_replicas
        return IPUModel(self.settings.chip, n_ipus, self.settings.n_tiles).create_device()

    # -- compiling ---------------------------------------------------------------------------------

    def _find_or_compile(self, bar: ProgressBar) -> "StoredTileProgram":
        from tremula.ir.run.tile_cache import ProgramCache, can_be_kept

        folder = self.settings.cache_folder
        if folder is None or not can_be_kept(self._captured):
            return self._compile(bar)  # its key, which reads all nodes, is made when it is saved
        cache, key = ProgramCache(folder, self.settings.warn), self.key
        stored = cache.find(key)
        if stored is None:
            stored = self._compile(bar).with_key(key)
            cache.keep(stored)
        return stored

    def _compile(self, bar: ProgressBar) -> "StoredTileProgram":
        from tremula.compiler.compile import compile_graph
        from tremula.ir.run.tile_cache import StoredTileProgram

        if self.settings.not_modelled:
            self.settings.warn(
                f"The tile program does not model: {'; '.join(self.settings.not_modelled)}. Results"
                " are the same; its memory and cycles are those of tensors that stay on the chips."
            )
        with garbage_collected_later(), small_pages():
            built, program = self.built(bar.part(0, 60))
            with span(COMPILATION, "compile graph"):
                progress = bar.part(60, 95)
                executable = compile_graph(built.graph, [program], self._engine_options(), progress)
        return StoredTileProgram.of(executable, built)

    @garbage_collected_later()
    def built(self, progress: "Progress | None" = None) -> "tuple[BuiltProgram, Sequence]":
        """The step as a graph of vertices and a program, not yet compiled."""
        from tremula.poplar.control import set_stochastic_rounding
        from tremula.poplar.programs import Sequence

        passes = tile_passes(
            self.schedule.stage_of_block,
            self.recomputed_stages,
            self.settings.lowering.locations.activation,
            self._shards(),
            self.settings.recomputation,
            self.schedule.phases,
        )
        step = apply(self._captured, passes, "tiles")
        options, target = self.lowering_options(), self.device().target
        with span(COMPILATION, "lower to tiles"):
            built = build_tile_program(step, target, self.schedule, options, progress)
        program = Sequence()
        if options.rounds_stochastically:
            set_stochastic_rounding(built.graph, program, True)
        program.add(built.program)
        return built, program

    @property
    def key(self) -> str:
        from tremula.ir.run.tile_cache import program_key

        return program_key(
            self._captured,
            (self.settings.chip, self.settings.n_tiles),
            self.schedule,
            self.lowering_options(),
            (self.recomputed_stages, self.settings.recomputation),
            dict(self.settings.engine_options),
        )

    def lowering_options(self) -> LoweringOptions:
        return replace(
            self.settings.lowering,
            is_training=self._captured.training,
            checks_indices=parse_options(self._engine_options()).flag("debug.strict"),
        )

    @property
    def recomputed_stages(self) -> tuple[int, ...]:
        """The stage of each block, if stages are computed again for the backward pass."""
        return self.schedule.stage_of_block if self.settings.recomputes_stages else ()

    def _shards(self) -> Shards:
        """Which updates replicas share out: of large weights that are the same on all of them."""
        step, locations, schedule = self._captured, self.settings.lowering.locations, self.schedule
        rule = step.rule
        if rule is None or schedule.n_replicas == 1 or rule.sets_loss_scale:
            return Shards()
        held_values = [
            (slot, node.meta["val"])
            for slot, node in zip(step.inputs, step.placeholders(), strict=True)
        ]
        sizes = {slot.name: value.numel() for slot, value in held_values if slot.kind == PARAMETER}
        has_states = {
            slot.owner for slot, value in held_values if slot.kind == STATE and value.numel() > 1
        }
        shared = [
            name for name in rule.names if schedule.group_of(name).size == schedule.n_replicas
        ]
        stored_as_shards = [name for name in shared if locations.weight.shards(sizes[name])]
        updated = [
            name
            for name in shared
            if name in stored_as_shards
            or (name in has_states and locations.state.shards(sizes[name]))
        ]
        return Shards(schedule.n_replicas, tuple(updated), tuple(stored_as_shards))

    def _engine_options(self) -> dict:
        return {**self.settings.engine_options, "tremula.seed": self.seed}

    # -- loading -----------------------------------------------------------------------------------

    def _new_engine(self, executable: "Executable") -> "Engine":
        """An engine that writes no reports: the model writes its own."""
        from tremula.runtime.engine import Engine

        options = self._engine_options()
        return Engine(executable, options=options, writes_reports=False).load(self.device())

    def _counting_engine(self, has_run: bool) -> "Engine":
        """An engine that ran: some codelets know their cycles only then. Any data will do."""
        if has_run:
            return self.engine()
        return self.engine_after_call()

    def engine_after_call(
        self, rows: Rows | None = None, weights_of: StepSession | None = None
    ) -> "Engine":
        """A separate engine on which one call ran, by default with zeros."""
        engine = self._new_engine(self.executable)
        session = self._session_on(engine)
        if weights_of is not None:
            copy_state(self._captured, weights_of, session)
        session.run(rows or self._zeros(), lambda *_: None)
        return engine

    def _zeros(self) -> Rows:
        """Inputs of all micro-batches of a call, without values."""
        placeholders = zip(self._captured.inputs, self._captured.placeholders(), strict=True)
        values = [node.meta["val"] for slot, node in placeholders if slot.kind == INPUT]
        inputs = [torch.zeros(tuple(v.shape), dtype=v.dtype) for v in values]
        return [inputs] * self.repetition.n_micro_batches


def build_tile_program(*args: Any, **options: Any) -> "BuiltProgram":  # noqa: ANN401
    """`ir.lowering`'s function of this name, loaded by its first call."""
    from tremula.ir.lowering.program import build

    return build.build_tile_program(*args, **options)

"""A model compiled for fixed inputs: captured, placed and opened on a device, ready to be called.

A front end hands over a module, inputs and plain settings, and gets an object that it calls:

    StepToCompile ─► capture ─► names, anchors ─► passes ─► session (this computer or tiles)
    StepSettings                                      └───► tile program, compiled on demand
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor, fx, nn

from tremula.base.tracing import COMPILATION, span
from tremula.ir.capture.capture import capture, held_tensors
from tremula.ir.optim.rule import UpdateRule
from tremula.ir.passes import COMMON_PASSES, apply
from tremula.ir.passes.random_bits import STATE_NAME, initial_state, reproducible
from tremula.ir.placement import Places
from tremula.ir.repetition import Repetition
from tremula.ir.run.generators import CountedRandom, DeviceRandom
from tremula.ir.run.output_facts import OutputFact, output_facts
from tremula.ir.run.replica_groups import GroupedSession, Grouping, one_slice_of
from tremula.ir.run.session import HostSession, Session
from tremula.ir.run.tensor_names import TensorNames, take_loss, with_tensors
from tremula.ir.settings import HostSettings
from tremula.ir.step import BUFFER, INPUT, OUTPUT, PARAMETER, CapturedStep

if TYPE_CHECKING:  # the tile side loads slowly, and only those who use it pay
    from tremula.ir.run.tile_cache import StoredTileProgram
    from tremula.ir.run.tile_program import TileProgram, TileSettings


def on_one_chip(_step: CapturedStep) -> Places:
    return Places()


@dataclass(frozen=True)
class StepToCompile:
    """A module with the inputs of one micro-batch, as the device has them."""

    model: nn.Module
    run_forward: Callable[[list[Tensor]], tuple[list[Tensor], Any]]  # flat outputs, how to rebuild
    inputs: list[Tensor]
    input_names: list[str]
    rule: UpdateRule | None = None  # of a step that trains


def _default_tiles() -> "TileSettings":
    from tremula.ir.run.tile_program import TileSettings  # loads slowly

    return TileSettings()


@dataclass(frozen=True)
class StepSettings:
    """How a step is repeated and run."""

    repetition: Repetition = field(default_factory=Repetition)
    host: HostSettings = field(default_factory=HostSettings)
    tiles: "TileSettings" = field(default_factory=_default_tiles)
    seed: int = 0
    runs_on_tiles: bool = False  # every result is computed vertex by vertex
    checks_floats: bool = False  # on the host: stop at the operation that makes a NaN
    groupings: Mapping[str, Grouping] = field(default_factory=dict)  # by name of the parameter
    anchors: Sequence[str] = ()  # tensors to return besides the outputs, by name
    source_excludes: tuple[str, ...] = ()  # files whose lines are not a model's
    # Says where blocks run; raises if the captured step cannot run as it was asked to.
    place: Callable[[CapturedStep], Places] = on_one_chip
    warn: Callable[[str], None] = lambda _text: None


@dataclass(frozen=True)
class CompiledStep:
    """Everything a call needs. What a call changes lives in `session` and `random`."""

    step: CapturedStep
    settings: StepSettings
    names: TensorNames
    anchored: list[str]  # names of the outputs that follow those of forward
    n_outputs: int  # of forward
    n_buffers: int  # of the module
    loss_output: int | None  # which output is the loss, if forward returns it
    tiles: "TileProgram"
    session: Session
    random: DeviceRandom
    seconds: float  # it took to compile all this

    @property
    def total_seconds(self) -> float:
        """The time of the compilation, with that of a tile program compiled since."""
        was_included = self.settings.runs_on_tiles or self.settings.host.tiles == "ahead"
        return self.seconds + (0.0 if was_included else self.tiles.seconds)

    @cached_property
    def writes_inputs(self) -> bool:
        return bool(self.step.results_of_kind(INPUT))

    def output_facts(self) -> list[OutputFact]:
        """What is known of each output, anchored tensors included, before it is computed."""
        results = list(zip(self.step.outputs, self.step.results(), strict=True))
        outputs = [node for slot, node in results if slot.kind == OUTPUT]
        return output_facts(outputs, [node for slot, node in results if slot.kind != OUTPUT])

    def write_weights(self, parameters: list[Tensor], buffers: list[Tensor]) -> None:
        """Host → device. The counter of a reproducible step keeps its value."""
        if not isinstance(self.random, CountedRandom):
            self.session.write_weights(parameters, buffers)
            return
        words = self.random.words()
        self.session.write_weights(parameters, [*buffers, initial_state(0)])
        self.random.set_words(words)

    def read_weights(self) -> tuple[list[Tensor], list[Tensor]]:
        """Device → host: parameters, and the buffers of the first replica."""
        parameters, buffers = self.session.read_weights()
        return parameters, buffers[0][: self.n_buffers]


def compile_step(
    asked: StepToCompile, settings: StepSettings, stored: "StoredTileProgram | None" = None
) -> CompiledStep:
    """Capture a step and open a session for it; `stored` is its tile program, if a file had it."""
    began = time.perf_counter()
    step, loss = _captured(asked, settings)
    names = TensorNames(step, loss)
    n_outputs = len(step.results_of_kind(OUTPUT))
    loss_output = _place_of_loss(step, loss)
    step, anchored = with_tensors(step, names, settings.anchors)
    places = settings.place(step)
    if settings.host.reproducible:
        step = apply(step, (("draw reproducibly", reproducible),))
    tiles = _tile_program(step, places, settings)
    if stored is not None:
        tiles.offer(stored)
    with span(COMPILATION, "open session"):
        session = _open_session(step, tiles, settings)
    return CompiledStep(
        step,
        settings,
        names,
        anchored,
        n_outputs,
        len(held_tensors(asked.model, BUFFER)),
        loss_output,
        tiles,
        session,
        _generators(session, settings.seed, step),
        time.perf_counter() - began,
    )


def _captured(asked: StepToCompile, settings: StepSettings) -> tuple[CapturedStep, fx.Node | None]:
    """The step of one replica, after the passes that both executions share, and its loss."""
    parameters = held_tensors(asked.model, PARAMETER)
    one_slice = one_slice_of(parameters, settings.groupings, settings.repetition.n_replicas)
    with one_slice, span(COMPILATION, "capture"):
        recorded = capture(
            asked.model,
            asked.run_forward,
            asked.inputs,
            rule=asked.rule,
            input_names=asked.input_names,
            source_excludes=settings.source_excludes,
            warn=settings.warn,
            keep_loss=True,
        )
        return take_loss(apply(recorded, COMMON_PASSES))


def _place_of_loss(step: CapturedStep, loss: fx.Node | None) -> int | None:
    outputs = [step.results()[place] for place, _ in step.results_of_kind(OUTPUT)]
    return next((i for i, node in enumerate(outputs) if node is loss), None)


def _tile_program(step: CapturedStep, places: Places, settings: StepSettings) -> "TileProgram":
    from tremula.ir.lowering.program.build import Schedule  # loads slowly
    from tremula.ir.run.tile_program import TileProgram

    repetition, groupings = settings.repetition, settings.groupings
    groups = tuple((name, g.group(repetition.n_replicas)) for name, g in groupings.items())
    schedule = Schedule.of(repetition, places, groups)
    return TileProgram(
        step, schedule, repetition, settings.tiles, seed=settings.seed, groupings=groupings
    )


def _open_session(step: CapturedStep, tiles: "TileProgram", settings: StepSettings) -> Session:
    if settings.runs_on_tiles:
        return tiles.session()
    if settings.host.tiles == "ahead":
        tiles.program()
    if settings.groupings:
        return GroupedSession(step, settings.repetition, settings.host, settings.groupings)
    return HostSession(
        step, settings.repetition, settings.host, checks_floats=settings.checks_floats
    )


def _generators(session: Session, seed: int, step: CapturedStep) -> DeviceRandom:
    """The generators of a session, seeded; of a reproducible step, its counter."""
    counter = next((s.index for _, s in step.of_kind(BUFFER) if s.name == STATE_NAME), None)
    return session.generators(seed) if counter is None else CountedRandom(session, seed, counter)

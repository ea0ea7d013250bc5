"""A model compiled for fixed inputs: captured, placed and opened on a device, ready to be called.

A front end hands over a module, inputs and plain settings, and gets an object that it calls:

    StepToCompile ─► capture ─► passes ─► anchors ─► places ─► session (this computer or tiles)
    StepSettings                                         └───► tile program, compiled on demand

The session is opened by its first use: a front end can look at the captured step before.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor, fx, nn

from tremula.base.passes import garbage_collected_later
from tremula.ir.capture.capture import capture, model_tensors
from tremula.ir.group_values import GroupValues
from tremula.ir.host.compiled.pool import PoolUse, start_pool
from tremula.ir.host.compiled.programs import is_expected, start_key
from tremula.ir.host.start_phases import start_phase
from tremula.ir.lowering.program.schedule import Schedule
from tremula.ir.optim.rule import UpdateRule
from tremula.ir.output_facts import OutputFact, output_facts
from tremula.ir.passes import COMMON_PASSES, apply
from tremula.ir.passes.random_bits import STATE_NAME, initial_state, reproducible
from tremula.ir.placement import BlockPlacements, PlacementRules, place_blocks
from tremula.ir.repetition import Repetition
from tremula.ir.run.generators import CountedRandom, DeviceRandom
from tremula.ir.run.replica_groups import GroupedSession, one_slice_of
from tremula.ir.run.session import HostSession, StepSession
from tremula.ir.run.tensor_names import TensorNames, take_loss, with_tensors
from tremula.ir.run.tile_program import TileProgram
from tremula.ir.run.tile_settings import TileSettings
from tremula.ir.settings import HostSettings
from tremula.ir.step import BUFFER, INPUT, OUTPUT, PARAMETER, CapturedStep

if TYPE_CHECKING:  # lazy: importing the tile compiler is slow
    from tremula.ir.run.tile_cache import StoredTileProgram


@dataclass(frozen=True)
class StepToCompile:
    """A module with the inputs of one micro-batch, as the device has them."""

    model: nn.Module
    run_forward: Callable[[list[Tensor]], tuple[list[Tensor], Any]]  # flat outputs, how to rebuild
    inputs: list[Tensor]
    input_names: list[str]
    rule: UpdateRule | None = None  # of a step that trains


@dataclass(frozen=True)
class StepSettings:
    """How a step is repeated and run."""

    repetition: Repetition = field(default_factory=Repetition)
    host: HostSettings = field(default_factory=HostSettings)
    tiles: TileSettings = field(default_factory=TileSettings)
    seed: int = 0
    runs_on_tiles: bool = False  # every result is computed vertex by vertex
    checks_floats: bool = False  # on the host: stop at the operation that makes a NaN
    rounds_stochastically: bool = False  # on a GPU: weights and states in halves, when updated
    strides_group_norms: bool = False  # group g of a group norm has channels g, g + n_groups, …
    groupings: Mapping[str, GroupValues] = field(default_factory=dict)  # by name of the parameter
    returned: Collection[int] | None = None  # micro-batches whose outputs are read; None: all
    anchors: Sequence[str] = ()  # tensors to return besides the outputs, by name
    source_excludes: tuple[str, ...] = ()  # files whose lines are not a model's
    placement: PlacementRules = field(default_factory=PlacementRules)  # of blocks, to chips
    warn: Callable[[str], None] = lambda _text: None


@dataclass(frozen=True)
class CompiledStep:
    """Everything a call needs. What a call changes lives in `session` and `random`."""

    step: CapturedStep
    settings: StepSettings
    anchored: list[str]  # names of the outputs that follow those of forward
    n_outputs: int  # of forward
    n_buffers: int  # of the module
    loss: fx.Node | None  # of a training step
    loss_output: int | None  # which output is the loss, if forward returns it
    tiles: TileProgram
    seconds: float  # that capturing took
    pool_use: PoolUse | None = None  # of the process that compiles for a GPU

    @cached_property
    def session(self) -> StepSession:
        """The device with the step on it, opened by the first use."""
        with start_phase("open session"):
            return _open_session(self.step, self.tiles, self.settings, self.pool_use)

    @cached_property
    def random(self) -> DeviceRandom:
        """The generators of the session, seeded; of a reproducible step, its counter."""
        slots = [slot for _, slot in self.step.of_kind(BUFFER) if slot.name == STATE_NAME]
        if slots:
            return CountedRandom(self.session, self.settings.seed, slots[0].index)
        return self.session.generators(self.settings.seed)

    @cached_property
    def names(self) -> TensorNames:
        """The tensors of the step by name."""
        return TensorNames(self.step, self.loss)

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
    request: StepToCompile, settings: StepSettings, stored: "StoredTileProgram | None" = None
) -> CompiledStep:
    """Capture a step and place it; `stored` is its tile program, if a file had it."""
    pool_use = _start_compiler(request, settings)
    try:
        return _compiled_step(request, settings, stored, pool_use)
    except BaseException:  # its traceback may live long, and all that it refers to
        if pool_use is not None:
            pool_use.end()
        raise


def _compiled_step(
    request: StepToCompile, settings: StepSettings, stored: "StoredTileProgram | None",
    pool_use: PoolUse | None,
) -> CompiledStep:  # fmt: skip
    began = time.perf_counter()
    step, loss = _captured(request, settings)
    n_outputs = len(step.results_of_kind(OUTPUT))
    loss_output = _place_of_loss(step, loss)
    step, anchored = with_tensors(step, loss, settings.anchors)
    places = place_blocks(step, settings.placement)
    if settings.host.reproducible:
        step = apply(step, (("draw reproducibly", reproducible),))
    tiles = _tile_program(step, places, settings)
    if stored is not None:
        tiles.offer(stored)
    return CompiledStep(
        step,
        settings,
        anchored,
        n_outputs,
        len(model_tensors(request.model, BUFFER)),
        loss,
        loss_output,
        tiles,
        time.perf_counter() - began,
        pool_use,
    )


def _start_compiler(request: StepToCompile, settings: StepSettings) -> PoolUse | None:
    """Let another process load Inductor while the step is captured, if it may be needed."""
    is_one = settings.repetition.n_processes == 1 and not settings.groupings
    if settings.runs_on_tiles or settings.host.host != "auto" or not is_one:
        return None
    if settings.host.torch_device().type != "cuda":
        return None
    tensors = [
        (tensor.name, tensor.tensor.shape, tensor.tensor.dtype)
        for kind in (PARAMETER, BUFFER)
        for tensor in model_tensors(request.model, kind)
    ]
    names = zip(request.input_names, request.inputs, strict=True)
    tensors += [(name, x.shape, x.dtype) for name, x in names]
    return None if is_expected(start_key(tensors)) else start_pool()


def _captured(
    request: StepToCompile, settings: StepSettings
) -> tuple[CapturedStep, fx.Node | None]:
    """The step of one replica, after the passes that both executions share, and its loss."""
    parameters = model_tensors(request.model, PARAMETER)
    one_slice = one_slice_of(parameters, settings.groupings, settings.repetition.n_replicas)
    with one_slice, start_phase("capture"), garbage_collected_later():
        recorded = capture(
            request.model,
            request.run_forward,
            request.inputs,
            rule=request.rule,
            input_names=request.input_names,
            source_excludes=settings.source_excludes,
            warn=settings.warn,
            keep_loss=True,
            strides_group_norms=settings.strides_group_norms,
        )
        with start_phase("common passes"):
            return take_loss(apply(recorded, COMMON_PASSES))


def _place_of_loss(step: CapturedStep, loss: fx.Node | None) -> int | None:
    outputs = [step.results()[place] for place, _ in step.results_of_kind(OUTPUT)]
    return next((i for i, node in enumerate(outputs) if node is loss), None)


def _tile_program(
    step: CapturedStep, places: BlockPlacements, settings: StepSettings
) -> TileProgram:
    repetition, groupings = settings.repetition, settings.groupings
    groups = tuple((name, values.replicas) for name, values in groupings.items())
    schedule = Schedule.of(repetition, places, groups)
    return TileProgram(
        step, schedule, repetition, settings.tiles, seed=settings.seed, groupings=groupings
    )


def _open_session(
    step: CapturedStep, tiles: TileProgram, settings: StepSettings, pool_use: PoolUse | None
) -> StepSession:
    if settings.runs_on_tiles:
        return tiles.session()
    if settings.tiles.cache_folder is not None:
        from tremula.ir.run.host_cache import keep_host_program  # lazy: slow to import

        keep_host_program(step, tiles)
    if settings.host.tiles == "ahead":
        tiles.program()
    if settings.groupings:
        return GroupedSession(step, settings.repetition, settings.host, settings.groupings)
    with garbage_collected_later():
        return HostSession(
            step,
            settings.repetition,
            settings.host,
            checks_floats=settings.checks_floats,
            rounds_stochastically=settings.rounds_stochastically,
            returned=settings.returned,
            pool_use=pool_use,
        )

"""A model compiled for fixed inputs: the captured step, its session, its tile program on demand."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensor

from tremula.base.tracing import POPTORCH, span
from tremula.frontends.poptorch.enums import ReductionType
from tremula.frontends.poptorch.exceptions import (
    PYTHON_ERROR,
    Error,
    createPoptorchError,
    poptorch_errors,
)
from tremula.frontends.poptorch.executor.compile_hooks import compile_hooks
from tremula.frontends.poptorch.executor.float_checks import stop_at_exceptions
from tremula.frontends.poptorch.executor.names import TensorNames, take_loss, with_anchors
from tremula.frontends.poptorch.executor.outputs import (
    InputCutter,
    OutputGroup,
    Selection,
    output_facts,
)
from tremula.frontends.poptorch.executor.overlap import check_overlap
from tremula.frontends.poptorch.executor.placement import (
    Placement,
    check_pipeline_depth,
    n_ipus_needed,
    resolve_blocks,
)
from tremula.frontends.poptorch.executor.randomness import CountedRandom, make_random, new_seed
from tremula.frontends.poptorch.executor.replica_weights import (
    GroupedSession,
    Grouping,
    one_slice_of,
)
from tremula.frontends.poptorch.executor.weights import HostWeights, plain
from tremula.frontends.poptorch.inputs.arg_parsers import NARROWER, ParsedArgs, micro_batch
from tremula.frontends.poptorch.inputs.structures import flatten_outputs
from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.options.options import Options
from tremula.ir.capture.capture import capture
from tremula.ir.host.cuda_graph import CudaGraphProgram
from tremula.ir.nodes import schema_name
from tremula.ir.optim.rules import UpdateRule
from tremula.ir.origin import FORWARD, ORIGIN
from tremula.ir.passes import COMMON_PASSES, apply
from tremula.ir.passes.random_bits import initial_state, reproducible
from tremula.ir.run.session import HostSession, Repetition, Session
from tremula.ir.run.tile_cache import StoredTileProgram
from tremula.ir.run.tile_program import TileProgram
from tremula.ir.settings import HostSettings
from tremula.ir.step import BUFFER, INPUT, OUTPUT, CapturedStep


class CompiledModel:
    """What compiling a model once gives: everything a call needs, nothing that changes with it."""

    def __init__(
        self,
        model: nn.Module,
        first: ParsedArgs,
        options: Options,
        rule: UpdateRule | None,
        settings: HostSettings,
        run_on_tiles: bool,
        *,
        stored: StoredTileProgram | None = None,
        groupings: Mapping[str, Grouping] | None = None,
    ):
        self.groupings = groupings or {}
        self.first = first
        self.options = options
        self.settings = settings
        self.run_on_tiles = run_on_tiles
        began = time.perf_counter()
        with plain(model):
            self.weights = HostWeights(model)
            self.step, loss = self._captured(model, rule)
        self.names = TensorNames(self.step, loss)
        self.n_outputs = len(self.step.results_of_kind(OUTPUT))
        self.loss_output = _place_of_loss(self.step, loss)
        self.step, self.anchors = with_anchors(self.step, self.names, options)
        check_overlap(self.step, options)
        self.placement = _placed(self.step, options)
        self.repetition = _repetition(options)
        self._check_buffers()
        if settings.reproducible:
            with poptorch_errors():
                self.step = reproducible(self.step)
        check_pipeline_depth(options, self.placement.n_pipeline_stages, rule is not None)
        self.n_ipus = n_ipus_needed(self.placement.ipus, options.replication_factor, options)
        seed = options.random_seed % 2**63 if options.exists("random_seed") else new_seed()
        self.tiles = self._tile_program(seed)
        self.tiles.offer(stored)
        self.cutter = InputCutter(first.tensors, options)
        self.selection = Selection.of(options)
        self.output_groups = self._output_groups()
        self.wide_inputs = [i for i, t in enumerate(first.tensors) if _on_device(t) is not t]
        self.writes_inputs = bool(self.step.results_of_kind(INPUT))
        with span(POPTORCH, "open session"):
            self.session: Session = self._open_session()
        self.random = make_random(self.session, seed, self.step)
        self.moves_inputs = _moves_inputs(self.session)
        self.seconds = time.perf_counter() - began

    def _captured(
        self, model: nn.Module, rule: UpdateRule | None
    ) -> tuple[CapturedStep, fx.Node | None]:
        """The step of one replica, and its loss."""
        n_replicas = self.options.replication_factor
        slices = one_slice_of(self.weights.parameters, self.groupings, n_replicas)
        with slices, span(POPTORCH, "capture"):
            return take_loss(_captured(model, self.first, self.options, rule))

    def _tile_program(self, seed: int) -> TileProgram:
        return TileProgram(
            self.step,
            self.placement,
            self.repetition,
            self.options,
            self.settings,
            seed=seed,
            groupings=self.groupings,
        )

    @property
    def total_seconds(self) -> float:
        """The time of the compilation, with that of a tile program compiled since."""
        own = 0.0 if self.run_on_tiles or self.settings.tiles == "ahead" else self.tiles.seconds
        return self.seconds + own

    @property
    def rule(self) -> UpdateRule | None:
        return self.step.rule

    def write_weights(self) -> None:
        """Host → device. The counter of a reproducible step stays where it is."""
        parameters, buffers = self.weights.values()
        if not isinstance(self.random, CountedRandom):
            self.session.write_weights(parameters, buffers)
            return
        words = self.random.words()
        self.session.write_weights(parameters, [*buffers, initial_state(0)])
        self.random.set_words(words)

    def read_weights(self) -> tuple[list[Tensor], list[Tensor]]:
        """Device → host: parameters, and the buffers of the first replica."""
        parameters, buffers = self.session.read_weights()
        return parameters, buffers[0][: len(self.weights.buffers)]

    def _open_session(self) -> Session:
        if self.run_on_tiles:
            return self.tiles.session()
        if self.settings.tiles == "ahead":
            self.tiles.program()
        if self.groupings:
            return GroupedSession(self.step, self.repetition, self.settings, self.groupings)
        if not self.options._Popart.options.get("enableFloatingPointChecks", False):
            return HostSession(self.step, self.repetition, self.settings)
        settings = replace(self.settings, host="eager")  # fused operations cannot be looked at
        session = HostSession(self.step, self.repetition, settings)
        stop_at_exceptions(session)
        return session

    def _output_groups(self) -> list[OutputGroup]:
        """The outputs of forward, and each anchored tensor with a mode of its own."""
        results = list(zip(self.step.outputs, self.step.results(), strict=True))
        outputs = [node for slot, node in results if slot.kind == OUTPUT]
        facts = output_facts(outputs, [node for slot, node in results if slot.kind != OUTPUT])
        n = self.n_outputs
        groups = [OutputGroup(self.selection, 0, facts[:n])]
        for place, anchor in enumerate(a for a in self.anchors if a.is_output):
            mode, period = anchor.anchored.output_mode, anchor.anchored.output_return_period
            selection = Selection.of(self.options, mode, period)
            groups.append(OutputGroup(selection, n + place, [facts[n + place]]))
        return groups

    def _check_buffers(self) -> None:
        """Replicas would disagree about a buffer that each of them writes."""
        written = self.step.results_of_kind(BUFFER)
        if (
            not written
            or self.options.replication_factor == 1
            or not self.options.broadcast_buffers
        ):
            return
        raise createPoptorchError(
            "PopTorch does not support broadcasting buffers. If your model is able to tolerate"
            " buffers becoming out of sync between replicas, you can disable buffer broadcasting"
            " using poptorch.Options.broadcastBuffers(False)."
            f" The buffer {written[0][1].name} is written."
        )


def _place_of_loss(step: CapturedStep, loss: fx.Node | None) -> int | None:
    """Which output is the loss, if forward returns it."""
    outputs = [step.results()[place] for place, _ in step.results_of_kind(OUTPUT)]
    return next((i for i, node in enumerate(outputs) if node is loss), None)


def _captured(
    model: nn.Module, first: ParsedArgs, options: Options, rule: UpdateRule | None
) -> CapturedStep:
    micro = [_on_device(micro_batch(tensor, options)) for tensor in first.tensors]
    for tensor in micro:
        if tensor.numel() == 0:
            shape = list(tensor.shape)
            raise createPoptorchError(f"Zero-sized tensors are unsupported (Got shape {shape})")

    def forward(flat: list[Tensor]) -> tuple[list[Tensor], Callable[..., Any]]:
        args, kwargs = first.rebuild(flat)
        outputs, rebuild = flatten_outputs(model(*args, **kwargs))
        if not all(isinstance(output, FakeTensor) for output in outputs):
            LOGGER.warning("Output expected to be on the IPU but is on cpu")
        return outputs, rebuild

    with poptorch_errors():
        with compile_hooks():
            recorded = capture(
                model,
                forward,
                micro,
                rule=rule,
                input_names=first.tensor_names(),
                source_excludes=tuple(options.source_location_excludes),
                warn=LOGGER.warning,
                keep_loss=True,
            )
        return apply(recorded, COMMON_PASSES)


def _on_device(tensor: Tensor) -> Tensor:
    """As the model sees an input: floats are narrower on the device, integers stay as they are."""
    is_wide = tensor.is_floating_point() and tensor.dtype in NARROWER
    return tensor.to(NARROWER[tensor.dtype]) if is_wide else tensor


def _placed(step: CapturedStep, options: Options) -> Placement:
    """The chip of each block, in the order operations met them."""
    _check_all_in_blocks(step)
    ids = [(block.user_id, block.ipu_id) for block in step.blocks]
    return resolve_blocks(options._execution_strategy, ids)


def _check_all_in_blocks(step: CapturedStep) -> None:
    """What comes before the first block is on chip 0; later on, every operation needs a block."""
    is_in_blocks = False
    for node in step.graph.nodes:
        origin = node.meta.get(ORIGIN)
        if node.op != "call_function" or origin is None or origin.phase != FORWARD:
            continue
        if is_in_blocks and origin.block is None:
            raise Error(
                PYTHON_ERROR,
                "No active Block, all the ops must belong to a Block:"
                f" {schema_name(node)} at {origin.source}",
                hint="make it part of a poptorch.Block, or use BeginBlock or Block.start, which"
                " last until the next block",
            )
        is_in_blocks = is_in_blocks or origin.block is not None


def _repetition(options: Options) -> Repetition:
    n_micro = options.Training.gradient_accumulation * options.replication_factor
    n_all = n_micro * options.Distributed.numProcesses
    kind = ReductionType(options.Training.accumulation_and_replication_reduction_type)
    scale = 1.0 / n_all if kind is ReductionType.Mean else 1.0
    return Repetition(
        options.device_iterations,
        options.Training.gradient_accumulation,
        options.replication_factor,
        scale,
        options.Distributed.numProcesses,
    )


def _moves_inputs(session: Session) -> torch.device | None:
    """The device that inputs must be moved to; programs with memory of their own copy them."""
    if not isinstance(session, HostSession) or session.device.type == "cpu":
        return None
    return None if isinstance(session.program, CudaGraphProgram) else session.device

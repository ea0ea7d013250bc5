"""A model compiled for fixed inputs: the captured step, its session, its tile program on demand."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tremula.frontends.torch.arg_parsers import ParsedArgs, micro_batch
from tremula.frontends.torch.exceptions import createPoptorchError
from tremula.frontends.torch.logging import LOGGER
from tremula.frontends.torch.options import Options
from tremula.frontends.torch.placement import (
    Placement,
    check_pipeline_depth,
    n_ipus_needed,
    resolve_blocks,
)
from tremula.frontends.torch.structures import flatten_outputs
from tremula.frontends.torch.tile_program import TileProgram
from tremula.ir.capture import capture
from tremula.ir.errors import CaptureError
from tremula.ir.origin import FORWARD, ORIGIN
from tremula.ir.passes import COMMON_PASSES, apply
from tremula.ir.session import HostSession, Repetition, Session
from tremula.ir.settings import HostSettings
from tremula.ir.step import BUFFER, CapturedStep
from tremula.ir.update_rules import UpdateRule


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
    ):
        self.first = first
        self.options = options
        self.settings = settings
        self.run_on_tiles = run_on_tiles
        began = time.perf_counter()
        self.step = _captured(model, first, options, rule)
        self.placement = _placed(self.step, options)
        self.repetition = _repetition(options)
        self._check_buffers()
        check_pipeline_depth(options, self.placement.n_pipeline_stages, rule is not None)
        self.n_ipus = n_ipus_needed(self.placement.ipus, options.replication_factor, options)
        self.tiles = TileProgram(self.step, self.placement, self.repetition, options, settings)
        self.constant_outputs = self._constant_outputs()
        self.session: Session = self._open_session()
        self.seconds = time.perf_counter() - began

    @property
    def rule(self) -> UpdateRule | None:
        return self.step.rule

    def _open_session(self) -> Session:
        if self.run_on_tiles:
            return self.tiles.session()
        if self.settings.tiles == "ahead":
            self.tiles.engine()
        return HostSession(self.step, self.repetition, self.settings)

    def _constant_outputs(self) -> list[bool]:
        results = zip(self.step.outputs, self.step.results(), strict=True)
        return [node.op == "get_attr" for slot, node in results if slot.kind == "output"]

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
        return flatten_outputs(model(*args, **kwargs))

    try:
        recorded = capture(
            model,
            forward,
            micro,
            rule=rule,
            input_names=first.tensor_names(),
            source_excludes=tuple(options.source_location_excludes),
        )
        return apply(recorded, COMMON_PASSES)
    except CaptureError as error:
        raise createPoptorchError(str(error)) from error


def _on_device(tensor: Tensor) -> Tensor:
    """As the model sees an input: 64-bit and brain floats are float32 on the device."""
    wide = tensor.dtype in (torch.float64, torch.bfloat16)
    return tensor.float() if wide else tensor


def _placed(step: CapturedStep, options: Options) -> Placement:
    """The chip of each block, in the order operations met them."""
    met: list[int | None] = []
    for node in step.graph.nodes:
        origin = node.meta.get(ORIGIN)
        if origin is not None and origin.phase == FORWARD and origin.block not in met:
            met.append(origin.block)
    if not step.blocks:
        return Placement((), (), (), ())
    ids = [(block.user_id, block.ipu_id) for block in step.blocks]
    return resolve_blocks(options._execution_strategy, ids)


def _repetition(options: Options) -> Repetition:
    from tremula.frontends.torch.enums import ReductionType

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


def log_compiled(compiled: CompiledModel, name: str) -> None:
    LOGGER.info(
        "Compiled %s in %.2f s: %d nodes", name, compiled.seconds, len(compiled.step.graph.nodes)
    )

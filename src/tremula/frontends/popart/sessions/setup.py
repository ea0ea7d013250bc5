"""The arguments of a session, checked: its model, data, device, options, and what it trains."""

import copy
import os
from dataclasses import dataclass

import onnx

from tremula.frontends.popart.data_flow import DataFlow
from tremula.frontends.popart.devices import DeviceInfo
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.optimisers.optimisers import Optimizer
from tremula.frontends.popart.options.options import SessionOptions, check
from tremula.frontends.popart.options.patterns import Patterns
from tremula.frontends.popart.step_settings import repetition
from tremula.frontends.popart.tensor_info import InputShapeInfo
from tremula.ir.repetition import Repetition

Model = str | bytes | os.PathLike | onnx.ModelProto


@dataclass(frozen=True, kw_only=True)
class SessionSetup:
    """What a session is made from, as `checked_setup` checked it."""

    model: Model
    flow: DataFlow
    device: DeviceInfo
    shapes: InputShapeInfo
    patterns: Patterns
    options: SessionOptions
    name: str
    repetition: Repetition  # how often a step runs the graph, and how gradients combine
    loss: str | None = None  # of a session that trains
    optimizer: Optimizer | None = None

    @property
    def is_training(self) -> bool:
        return self.loss is not None


def checked_setup(
    model: Model,
    flow: DataFlow,
    device: DeviceInfo,
    shapes: InputShapeInfo | None,
    patterns: Patterns | None,
    options: SessionOptions | None,
    name: str,
    *,
    loss: str | None = None,
    optimizer: Optimizer | None = None,
) -> SessionSetup:
    """Arguments as scripts pass them, with defaults; raises for those that cannot be.

    Options and the optimiser are copied: a script that changes them later changes nothing here.
    """
    options = copy.deepcopy(options) if options is not None else SessionOptions()
    check(options)
    if not isinstance(flow, DataFlow):
        raise popart_exception(f"dataFlow must be a popart.DataFlow, got {flow!r}")
    if not isinstance(device, DeviceInfo):
        raise popart_exception(f"Must pass a valid deviceInfo, got {device!r}")
    patterns = patterns if patterns is not None else Patterns()
    patterns.check()
    return SessionSetup(
        model=model,
        flow=flow,
        device=device,
        shapes=shapes or InputShapeInfo(),
        patterns=patterns,
        options=options,
        name=name,
        repetition=repetition(options, flow.batchesPerStep(), is_training=loss is not None),
        loss=loss,
        optimizer=copy.deepcopy(optimizer),
    )

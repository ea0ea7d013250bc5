"""Runs a function of tensors on tiles: captured, lowered, compiled, executed vertex by vertex."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from tremula.base.options import parse_options
from tremula.ir.capture.capture import capture
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.lowering.tiles import LoweringOptions
from tremula.ir.lowering.types import narrow, tile_type, torch_type
from tremula.ir.passes import COMMON_PASSES, TILE_PASSES, apply
from tremula.ir.step import CapturedStep
from tremula.poplar.target import Device, IPUModel
from tremula.runtime.engine import Engine


class _Function(nn.Module):
    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> object:
        return self.function(*inputs)


def capture_function(function: Callable, inputs: list[Tensor]) -> CapturedStep:
    """A function of tensors as an inference step, ready for lowering."""
    model = _Function(function)

    def forward(flat: list[Tensor]) -> tuple[list[Tensor], None]:
        result = model(*flat)
        return ([result] if isinstance(result, Tensor) else list(result)), None

    return apply(capture(model, forward, inputs), COMMON_PASSES + TILE_PASSES)


def run_on_tiles(
    function: Callable,
    *inputs: Tensor,
    device: Device | None = None,
    options: LoweringOptions | None = None,
    engine_options: dict | None = None,
) -> list[Tensor]:
    """What a function gives when every one of its operations runs on tiles."""
    device = device or IPUModel("bow", tiles_per_ipu=8).create_device()
    step = capture_function(function, list(inputs))
    is_strict = parse_options(engine_options).flag("debug.strict")
    options = replace(options or LoweringOptions(), checks_indices=is_strict)
    built = build_tile_program(step, device.target, Schedule(), options)
    engine = Engine(built.graph, [built.program], engine_options)
    engine.load(device)
    for handle, function_of_arrays in built.host_functions.items():
        engine.connect_host_function(handle, function_of_arrays)
    for handle, value in zip(built.inputs, inputs, strict=True):
        engine.connect_stream(handle, narrow(value).reshape(-1))
    results = []
    for (_slot, handle), node in zip(built.outputs, step.results(), strict=True):
        shape, type = tuple(node.meta["val"].shape), tile_type(node.meta["val"].dtype)
        values = np.zeros(shape, type.dtype)
        engine.connect_stream(handle, values.reshape(-1))
        results.append((values, type))
    engine.run()
    return [torch.from_numpy(values).to(torch_type(type)) for values, type in results]

"""A function of PyTorch tensors on tiles: what it computes there, and what it costs.

import torch
import tremula

def gelu_of_product(x, y):
return torch.nn.functional.gelu(x @ y)

x, y = torch.randn(64, 64), torch.randn(64, 64)
(result,) = tremula.run_on_tiles(gelu_of_product, x, y)
report = tremula.cost_of(gelu_of_product, x, y, chip="bow")
report.total_cycles, report.memory
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from torch import Tensor, nn

from tremula.base.options import parse_options
from tremula.compiler.compile import compile_graph
from tremula.compiler.report.report import ProgramReport
from tremula.hardware.chip_model import Chip
from tremula.ir.capture.capture import capture
from tremula.ir.lowering.options import LoweringOptions
from tremula.ir.lowering.program.build import BuiltProgram, Schedule, build_tile_program
from tremula.ir.lowering.types import narrow, tile_shape, tile_type, widened
from tremula.ir.passes import COMMON_PASSES, TILE_PASSES, apply
from tremula.ir.run.session import connect
from tremula.ir.step import OUTPUT, CapturedStep
from tremula.poplar.target import Device, IPUModel
from tremula.runtime.engine import Engine
from tremula.runtime.forecast import forecast


class _Function(nn.Module):
    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> object:
        return self.function(*inputs)


def record_function(function: Callable, inputs: list[Tensor]) -> CapturedStep:
    """A function of tensors as an inference step, as both executions start from it."""
    model = _Function(function)

    def forward(flat: list[Tensor]) -> tuple[list[Tensor], None]:
        result = model(*flat)
        return ([result] if isinstance(result, Tensor) else list(result)), None

    return apply(capture(model, forward, inputs), COMMON_PASSES)


def capture_function(function: Callable, inputs: list[Tensor]) -> CapturedStep:
    """A function of tensors as an inference step, ready for lowering."""
    return apply(record_function(function, inputs), TILE_PASSES, "tiles")


def run_on_tiles(
    function: Callable,
    *inputs: Tensor,
    device: Device | None = None,
    options: LoweringOptions | None = None,
    engine_options: Mapping[str, object] | None = None,
) -> list[Tensor]:
    """The result of a function when every one of its operations runs on tiles.

    It is traced on tensors shaped like `inputs`, lowered, compiled and executed vertex by vertex,
    on a chip with eight tiles unless a device is given. A single result is a list of one:

        >>> import torch, tremula
        >>> tremula.run_on_tiles(torch.add, torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        [tensor([4., 6.])]
    """
    step = record_function(function, list(inputs))
    return run_step_on_tiles(
        step, *inputs, device=device, options=options, engine_options=engine_options
    )


def run_step_on_tiles(
    step: CapturedStep,
    *inputs: Tensor,
    device: Device | None = None,
    options: LoweringOptions | None = None,
    engine_options: Mapping[str, object] | None = None,
) -> list[Tensor]:
    """Compile a recorded step for tiles and run it once: its results."""
    device = device or IPUModel("bow", tiles_per_ipu=8).create_device()
    built = _built(apply(step, TILE_PASSES, "tiles"), device, options, engine_options)
    engine = Engine(built.graph, [built.program], engine_options)
    engine.load(device)
    for handle, function_of_arrays in built.host_functions.items():
        engine.connect_host_function(handle, function_of_arrays)
    for handle, value in zip(built.inputs, inputs, strict=True):
        connect(engine, handle, narrow(value))
    results = []
    for (slot, handle), node in zip(built.outputs, step.results(), strict=True):
        fake = node.meta["val"]
        values = np.zeros(tile_shape(fake), tile_type(fake.dtype).dtype)
        connect(engine, handle, values)
        if slot.kind == OUTPUT:  # the others are inputs that the function wrote
            results.append((values, fake.dtype))
    engine.run()
    return [widened(values, dtype) for values, dtype in results]


def cost_of(
    function: Callable,
    *inputs: Tensor,
    chip: str | Chip = "bow",
    n_tiles: int = 0,
    options: LoweringOptions | None = None,
    engine_options: Mapping[str, object] | None = None,
) -> ProgramReport:
    """The cycles and memory that a function takes on one chip; nothing is computed.

    Transfers of inputs and results between host and chip are part of it. `n_tiles` is the number of
    tiles to use, 0 for all of them.

        >>> import torch, tremula
        >>> report = tremula.cost_of(torch.add, torch.ones(1000), torch.ones(1000), n_tiles=4)
        >>> report.total_cycles > 0
        True
    """
    device = IPUModel(chip, tiles_per_ipu=n_tiles).create_device()
    step = capture_function(function, list(inputs))
    built = _built(step, device, options, engine_options)
    return forecast(compile_graph(built.graph, [built.program], engine_options))


def _built(
    step: CapturedStep,
    device: Device,
    options: LoweringOptions | None,
    engine_options: Mapping[str, object] | None,
) -> BuiltProgram:
    is_strict = parse_options(engine_options).flag("debug.strict")
    options = replace(options or LoweringOptions(), checks_indices=is_strict)
    return build_tile_program(step, device.target, Schedule(), options)

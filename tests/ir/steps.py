"""Helpers of tests: functions and models as captured steps, run on the host or trained on tiles."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tremula.frontends.poptorch.optim.rule import hyper_values, rule_from
from tremula.ir.capture.capture import capture
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.lowering.tiles import LoweringOptions
from tremula.ir.passes import COMMON_PASSES, TILE_PASSES, apply
from tremula.ir.repetition import Repetition
from tremula.ir.run.session import HostSession, TileSession
from tremula.ir.settings import HostSettings
from tremula.ir.step import CapturedStep
from tremula.poplar.target import IPUModel
from tremula.runtime.engine import Engine


class Function(nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> object:
        return self.function(*inputs)


def _flat(result: object) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [] if result is None else [t for item in result for t in _flat(item)]


def captured(
    model: Callable, *inputs: Tensor, passes: tuple = COMMON_PASSES, rule: object = None
) -> CapturedStep:
    """A function or model as a step that both executions can start from."""
    module = model if isinstance(model, nn.Module) else Function(model)
    step = capture(module, lambda flat: (_flat(module(*flat)), None), list(inputs), rule=rule)
    return apply(step, passes)


def run_host(step: CapturedStep, *inputs: Tensor, model: nn.Module | None = None) -> list[Tensor]:
    """What one run of an inference step gives on the CPU."""
    session = HostSession(step, Repetition(), HostSettings(host="eager", device="cpu"))
    model = model or nn.Module()
    session.write_weights(list(model.parameters()), list(model.buffers()))
    outputs: list[Tensor] = []
    session.run([list(inputs)], lambda _number, result: outputs.extend(result))
    return outputs


def training_step(model: nn.Module, *inputs: Tensor, lr: float = 0.1) -> CapturedStep:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return captured(model, *inputs, rule=rule_from(optimizer, model.named_parameters()))


@dataclass(frozen=True)
class Trained:
    """What one training step on tiles left."""

    outputs: list[Tensor]
    weights: list[Tensor]
    temporary_bytes: int  # of all tiles, each at its fullest moment
    n_steps: int  # of the program, however often each runs


def train_on_tiles(
    model: nn.Module, *inputs: Tensor, lr: float = 0.1, options: LoweringOptions | None = None
) -> Trained:
    """One step of plain SGD, every operation on tiles."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    rule = rule_from(optimizer, model.named_parameters())
    step = apply(captured(model, *inputs, rule=rule), TILE_PASSES)
    device = IPUModel("bow", tiles_per_ipu=4).create_device()
    built = build_tile_program(step, device.target, Schedule(), options)
    engine = Engine(built.graph, [built.program])
    engine.load(device)
    session = TileSession(step, built, engine, Repetition())
    session.write_weights(list(model.parameters()), list(model.buffers()))
    session.write_states(rule.initial_state(list(model.parameters())))
    session.set_hyper(hyper_values(rule, optimizer))
    outputs: list[Tensor] = []
    session.run([list(inputs)], lambda _number, result: outputs.extend(result))
    memory = engine.report().memory
    n_steps = len(engine.executable.steps)
    return Trained(outputs, session.read_weights()[0], int(memory.temporary.sum()), n_steps)

"""The module that a session compiles: an imported model with marks for placing and training."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tremula.frontends.onnx.evaluate import Evaluation, Scope, is_live
from tremula.frontends.onnx.graph import OnnxNode
from tremula.frontends.onnx.imported import ImportedModel
from tremula.frontends.onnx.table import GRAPHCORE_DOMAIN
from tremula.frontends.popart.builder.annotations import (
    SERIALIZE_FACTOR,
    SERIALIZE_MODE,
    SERIALIZE_PRECISION,
    choices_of,
)
from tremula.frontends.popart.sessions.placement import block_name
from tremula.ir.ops import composite, markers  # noqa: F401 - register tremula::*
from tremula.ir.recorder import DEVICE
from tremula.ir.recording import active, choosing
from tremula.ir.step import BlockPlace

_OLD_DROPOUT = 12  # before it, a dropout drops whenever the session trains


@dataclass(frozen=True)
class StepPlan:
    """What a step computes, and where."""

    wanted: tuple[str, ...]  # tensors it returns, by id
    loss: str | None = None  # of a step that trains
    gradients: tuple[str, ...] = ()  # tensors whose gradients it returns, behind the others
    places: Mapping[str, BlockPlace] = field(default_factory=dict)  # by first output
    checkpoints: frozenset[str] = frozenset()  # tensors the backward pass finds kept
    updates: Mapping[str, str] = field(default_factory=dict)  # statistics: held -> new value
    aborts: tuple[str, ...] = ()  # conditions that stop the program; "": always

    @property
    def is_training(self) -> bool:
        return self.loss is not None

    def is_aborted(self, outputs: Sequence[Tensor]) -> bool:
        """Whether the results of a micro-batch say that the program stops."""
        if "" in self.aborts:
            return True
        return any(bool(outputs[self.wanted.index(id)].any()) for id in self.aborts)

    def needed(self) -> list[str]:
        """Everything that must be computed."""
        first = (self.loss,) if self.loss is not None else ()
        return list(dict.fromkeys([*self.wanted, *first, *self.gradients, *self.updates.values()]))


class StepModule(nn.Module):
    """forward takes the session's inputs in order, and returns what the plan wants."""

    def __init__(self, imported: ImportedModel, inputs: list[str], plan: StepPlan):
        super().__init__()
        self.onnx = imported.module
        self.inputs, self.plan = inputs, plan
        for name in plan.updates:
            self._hold_as_buffer(name)

    def _hold_as_buffer(self, name: str) -> None:
        """Statistics are written by forward, not by the optimiser."""
        place = self.onnx.name_of[name]
        value = getattr(self.onnx, place)
        if isinstance(value, nn.Parameter):
            delattr(self.onnx, place)
            self.onnx.register_buffer(place, value.data)

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        """Compute, mark the loss, and say which gradients are wanted."""
        plan, module = self.plan, self.onnx
        feeds = dict(zip(self.inputs, inputs, strict=True))
        for name in plan.gradients:
            if name in feeds:
                feeds[name] = feeds[name].detach().requires_grad_()
        values = self._run(feeds)
        recording = active()
        if recording is not None and plan.loss is not None:
            recording.losses[:] = [values[plan.loss]]
            for name in plan.gradients:
                recording.want_gradient(values[name])
        with torch.no_grad():
            for weight, new in plan.updates.items():
                module.initialiser(weight).copy_(values[new].detach())
        return [values[name] for name in plan.wanted]

    def _run(self, feeds: Mapping[str, Tensor]) -> dict[str, Any]:
        module, plan = self.onnx, self.plan
        fixed = module.graph.initialisers.items()
        constants = {name: value for name, value in fixed if name not in plan.updates}
        scope = Scope(module.graph, constants=constants)
        scope.values.update(module.others)
        scope.values.update({n: getattr(module, place) for n, place in module.name_of.items()})
        scope.values.update(feeds)
        fakes = [v for v in scope.values.values() if isinstance(v, Tensor) and is_live(v)]
        evaluation = _PlacedEvaluation(plan, scope, _device(fakes))
        values = evaluation.main(module.graph, scope, plan.needed())
        return {name: evaluation.bring_in(value) for name, value in values.items()}


def _device(live: Sequence[Tensor]) -> torch.device | None:
    """The device of the recording that is under way; None without one."""
    if active() is not None:
        return DEVICE
    return live[0].device if live else None


def is_dropout(op_type: str, domain: str, version: int) -> bool:
    """Whether a node drops elements because its session trains."""
    if domain == GRAPHCORE_DOMAIN:
        return op_type == "ShapedDropout"
    return not domain and op_type == "Dropout" and version < _OLD_DROPOUT


def _dropped(x: Tensor, ratio: float, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Zeros with a probability, in whole slices where the shape has a 1; and what stays."""
    mask = torch.rand_like(x.new_zeros(list(shape))) >= ratio
    return torch.where(mask, x / (1 - ratio), torch.zeros_like(x)), mask


class _PlacedEvaluation(Evaluation):
    """Each node of the main graph in the block its annotations name."""

    def __init__(self, plan: StepPlan, main: Scope, device: torch.device | None):
        super().__init__(device)
        self.plan, self.main_scope = plan, main

    def node(self, node: OnnxNode, scope: Scope) -> None:
        """One node, then the marks on its results."""
        is_main = scope is self.main_scope
        block = self._block(node) if is_main else nullcontext()
        with block, choosing(choices_of(node.attributes)):
            if not self._replaced(node, scope):
                super().node(node, scope)
            if is_main:
                self._mark(node, scope)

    @contextmanager
    def _block(self, node: OnnxNode) -> Iterator[None]:
        recording = active()
        place = self.plan.places.get(node.outputs[0] if node.outputs else node.name)
        if recording is None or place is None:
            yield
            return
        recording.begin_block(block_name(place), place.chip, place)
        try:
            yield
        finally:
            recording.end_block()

    def _replaced(self, node: OnnxNode, scope: Scope) -> bool:
        """Nodes that training or annotations compute in another way."""
        if self.plan.is_training and is_dropout(node.op_type, node.domain, node.version):
            x = self.bring_in(scope.value(node.inputs[0]))
            assert isinstance(x, Tensor), "Dropout is of one tensor"
            shape = node.attributes.get("shape", x.shape)
            results = _dropped(x, float(node.attributes.get("ratio", 0.5)), shape)
        elif node.op_type == "MatMul" and SERIALIZE_MODE in node.attributes:
            a, b = (self.bring_in(scope.value(name)) for name in node.inputs)
            how = (node.attributes[name] for name in (SERIALIZE_MODE, SERIALIZE_FACTOR))
            keeps = bool(node.attributes.get(SERIALIZE_PRECISION, 0))
            results = (torch.ops.tremula.serialized_mm(a, b, *how, keeps),)
        else:
            return False
        scope.values.update(zip(node.outputs, results, strict=False))
        return True

    def _mark(self, node: OnnxNode, scope: Scope) -> None:
        if active() is None:
            return
        for name in node.outputs:
            if name in self.plan.checkpoints and is_live(scope.values[name]):
                scope.values[name] = torch.ops.tremula.checkpoint(scope.values[name])

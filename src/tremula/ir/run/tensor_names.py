"""The tensors of a captured step by name, and steps that return some of them as well."""

import json
from collections.abc import Sequence

import torch
from torch import Tensor, fx

from tremula.base.errors import suggest
from tremula.ir.errors import UnsuitableModel
from tremula.ir.nodes import operand, schema_name
from tremula.ir.origin import FORWARD, ORIGIN
from tremula.ir.passes.random_bits import STATE_NAME
from tremula.ir.step import (
    BUFFER,
    GRADIENT,
    HYPER,
    INPUT,
    LOSS,
    OUTPUT,
    PARAMETER,
    CapturedStep,
    StepSlot,
)

UPDATED = "UpdatedVar___"
LOSS_SCALE = "finalLossScale"
# ONNX's names of operations, where they are not simply ATen's capitalised.
_OPERATIONS = {
    "addmm": "Gemm", "mm": "MatMul", "bmm": "MatMul", "baddbmm": "MatMul", "convolution": "Conv",
    "_softmax": "Softmax", "_log_softmax": "LogSoftmax", "max_pool2d_with_indices": "MaxPool",
    "avg_pool2d": "AveragePool", "native_batch_norm": "BatchNormalization",
    "native_layer_norm": "LayerNormalization", "native_group_norm": "GroupNormalization",
    "strided_group_norm": "GroupNormalization",
    "embedding": "Gather", "native_dropout": "Dropout", "nll_loss_forward": "Nll", "sub": "Sub",
    "t": "Transpose", "permute": "Transpose", "view": "Reshape", "_unsafe_view": "Reshape",
    "cat": "Concat", "sum": "ReduceSum", "mean": "ReduceMean",
}  # fmt: skip


class TensorNames:
    """The tensors of a captured step by name."""

    def __init__(self, step: CapturedStep, loss: fx.Node | None):
        self.nodes: dict[str, fx.Node] = {}
        self.updated: dict[str, int] = {}  # name -> index of the parameter
        self._n_named: dict[str, int] = {}  # numbers given out for a name
        for slot, node in zip(step.inputs, step.placeholders(), strict=True):
            if slot.kind == INPUT:
                self._add("input" if slot.index == 0 else f"input.{slot.index}", node)
                self._add(slot.name, node)
            elif slot.kind in (PARAMETER, BUFFER) and slot.name != STATE_NAME:
                self._add(slot.name, node)
        for node in step.graph.nodes:
            origin = node.meta.get(ORIGIN)
            if node.op == "call_function" and origin is not None and origin.phase == FORWARD:
                self._add(f"{origin.path}/{_operation(node)}:0".lstrip("/"), node)
        if loss is not None:
            self._add("loss", loss)
        for slot, node in zip(step.outputs, step.results(), strict=True):
            if slot.kind == GRADIENT:
                # Before gradients of micro-batches and replicas are reduced.
                self._add(f"Gradient___{slot.name}", operand(node))
            elif slot.kind == PARAMETER:
                self.updated[UPDATED + slot.name] = slot.index

    def _add(self, name: str, node: fx.Node) -> None:
        """A name that is taken gets a number appended."""
        if self.nodes.get(name) is node:
            return
        unique = name
        while unique in self.nodes:
            self._n_named[name] = self._n_named.get(name, 0) + 1
            unique = f"{name}/{self._n_named[name]}"
        self.nodes[unique] = node

    def all(self, is_training: bool) -> list[str]:
        of_graph = [name for name in self.nodes if name != LOSS_SCALE]
        return [*of_graph, *self.updated, *([LOSS_SCALE] if is_training else [])]


def _operation(node: fx.Node) -> str:
    name = schema_name(node).rpartition("::")[2] or "Item"
    return _OPERATIONS.get(name) or "".join(w.capitalize() for w in name.strip("_").split("_"))


def take_loss(step: CapturedStep) -> tuple[CapturedStep, fx.Node | None]:
    """The step without the loss among its results, and the loss; None for inference."""
    pairs = list(zip(step.outputs, step.results(), strict=True))
    loss = next((node for slot, node in pairs if slot.kind == LOSS), None)
    if loss is None:
        return step, None
    others = [(slot, node) for slot, node in pairs if slot.kind != LOSS]
    return _with_results(step, others), loss


def with_tensors(
    step: CapturedStep, loss: fx.Node | None, wanted: Sequence[str]
) -> tuple[CapturedStep, list[str]]:
    """The step with the wanted tensors of its graph as further outputs, and their names in order.

    Not among them: what the device holds after a call, such as updated weights.
    """
    if not wanted:
        return step, []
    names = TensorNames(step, loss)
    pairs = list(zip(step.outputs, step.results(), strict=True))
    n_outputs = sum(slot.kind == OUTPUT for slot, _ in pairs)
    for name in wanted:
        if name not in names.nodes and name not in names.all(step.training):
            advice = suggest(name, names.all(step.training))
            raise UnsuitableModel(f"No tensor {name} to anchor in the model: {advice}")
    if LOSS_SCALE in wanted and step.rule is not None and step.rule.sets_loss_scale:
        names.nodes[LOSS_SCALE] = _scale_in_use(step)
    added = [name for name in wanted if name in names.nodes]
    pairs += [
        (StepSlot(OUTPUT, n_outputs + i, name), names.nodes[name]) for i, name in enumerate(added)
    ]
    return (_with_results(step, pairs) if added else step), added


def _scale_in_use(step: CapturedStep) -> fx.Node:
    """What the loss of a micro-batch is scaled with: a copy, as the update overwrites it."""
    slots = list(zip(step.inputs, step.placeholders(), strict=True))
    scale = [node for slot, node in slots if slot.kind == HYPER][-1]
    with step.graph.inserting_after(slots[-1][1]):
        copied = step.graph.call_function(torch.ops.aten.mul.Tensor, (scale, 1.0))
    copied.meta["val"] = scale.meta["val"]
    return copied


def _with_results(step: CapturedStep, pairs: list[tuple[StepSlot, fx.Node]]) -> CapturedStep:
    graph = step.graph
    output = graph.output_node()
    output.args = ([node for _, node in pairs],)
    return step.with_graph(graph, outputs=tuple(slot for slot, _ in pairs))


def graph_as_json(step: CapturedStep) -> str:
    """The captured graph as text, in the shape of PopART's: {"maingraph": [operation, …]}."""
    operations = []
    for node in step.graph.nodes:
        if node.op != "call_function":
            continue
        origin = node.meta.get(ORIGIN)
        operations.append(
            {
                "type": _operation(node),
                "name": f"{origin.path}/{node.name}" if origin is not None else node.name,
                "inputs": [_described(source) for source in node.all_input_nodes],
                "outputs": [_described(node)],
                "attributes": {"phase": origin.phase if origin is not None else ""},
            }
        )
    return json.dumps({"maingraph": operations})


def _described(node: fx.Node) -> dict[str, object]:
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return {"name": node.name}
    shape = [int(n) for n in value.shape]
    return {"name": node.name, "shape": str(shape), "type": str(value.dtype).split(".")[-1]}

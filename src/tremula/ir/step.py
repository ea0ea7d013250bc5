"""A captured step: one functional graph with named inputs and outputs, and its blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, fx

from tremula.ir.optim.rule import UpdateRule

# Kinds of graph inputs and outputs.
PARAMETER, BUFFER, STATE, HYPER, INPUT = "parameter", "buffer", "state", "hyper", "input"
OUTPUT, GRADIENT, LOSS = "output", "gradient", "loss"


@dataclass(frozen=True)
class StepSlot:
    """One input or output of the graph: its kind, and its index and name within the kind."""

    kind: str
    index: int
    name: str
    owner: str | None = None  # of an optimiser's state: the name of the weight it belongs to


@dataclass(frozen=True)
class BlockPlace:
    """Where the operations of a block run."""

    chip: int
    stage: int | None = None  # of a pipeline
    phase: int | None = None  # of phased execution
    order: int | None = None  # if not None: no operation reads from a block with a larger one


@dataclass(frozen=True)
class BlockOfOps:
    """A block as the model opened it, and where its front end puts it."""

    user_id: str
    ipu_id: int | None
    place: BlockPlace | None = None


@dataclass(frozen=True)
class CapturedStep:
    """The step of a model as a graph: placeholders in the order of `inputs`, results of `outputs`.

    Training: parameters, buffers, optimiser states and hyperparameters, inputs → outputs, then the
    new value of everything the step changes. Inference: the same without an optimiser.
    """

    graph: fx.Graph
    constants: dict[str, Tensor]
    inputs: tuple[StepSlot, ...]
    outputs: tuple[StepSlot, ...]
    blocks: tuple[BlockOfOps, ...]
    rule: UpdateRule | None = None  # of a training step, for the weights it updates
    rebuild_outputs: Any = None  # flat tensors -> the structure forward returned

    @property
    def training(self) -> bool:
        return self.rule is not None

    def module(self) -> fx.GraphModule:
        """The graph with its constants, ready to run."""
        owner = torch.nn.Module()
        for name, value in self.constants.items():
            owner.register_buffer(name, value, persistent=False)
        return fx.GraphModule(owner, self.graph)

    def placeholders(self) -> list[fx.Node]:
        return [node for node in self.graph.nodes if node.op == "placeholder"]

    def results(self) -> list[fx.Node]:
        """The nodes the graph returns, in the order of `outputs`."""
        return list(cast("Sequence[fx.Node]", self.graph.output_node().args[0]))

    def of_kind(self, kind: str) -> list[tuple[int, StepSlot]]:
        """Positions and slots of the inputs of one kind."""
        return [(index, slot) for index, slot in enumerate(self.inputs) if slot.kind == kind]

    def results_of_kind(self, kind: str) -> list[tuple[int, StepSlot]]:
        return [(index, slot) for index, slot in enumerate(self.outputs) if slot.kind == kind]

    def with_graph(self, graph: fx.Graph, **changes: object) -> "CapturedStep":
        return replace(self, graph=graph, **changes)


def bytes_of(value: Tensor) -> bytes:
    """The values of a constant, for digests."""
    # A copy: an expanded number counts as contiguous, with a stride that cannot be seen as bytes.
    copy = value.detach().cpu().clone(memory_format=torch.contiguous_format)
    return copy.reshape(-1).view(torch.uint8).numpy().tobytes()

"""Outputs on their way from a GPU to the host while the rest of a recorded step still runs.

A call of a training step needs the outputs of forward; gradients and the update only have to be
complete before the next step reads the weights. So the recorded graph copies outputs to pinned
memory on a separate stream as soon as they are computed, and records an event after the last ones.
A call waits for that event, and the host prepares the next call while the GPU trains:

    GPU   inputs │ forward │ backward │ update │ inputs │ forward │ …
    copies                 └ outputs                    └ outputs
    host  ……… waits ………………… returns │ stages the next inputs │ waits …
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, fx, nn

from tremula.ir.output_facts import output_facts
from tremula.ir.step import INPUT, OUTPUT, CapturedStep

_MOST_BYTES = 4 << 20  # of all outputs of a call: larger ones take memory and time on the host
_HOOK = "output_hook"  # the module's name
Outputs = Sequence[Sequence[Tensor]]  # of each micro-batch


def can_leave_early(step: CapturedStep) -> bool:
    """Whether the outputs of a step are complete before it ends, and nothing writes over them.

    The step must not write its inputs either: a caller has them when a call returns.
    """
    if not step.training or not step.results_of_kind(OUTPUT) or step.results_of_kind(INPUT):
        return False
    results = step.results()
    outputs = {position for position, _ in step.results_of_kind(OUTPUT)}
    others = [node for position, node in enumerate(results) if position not in outputs]
    facts = output_facts([results[position] for position in sorted(outputs)], others)
    return not any(fact.must_copy for fact in facts)


def last_maker(made: Sequence[Iterable[object]], wanted: Iterable[object]) -> int:
    """The index of the call after which all wanted values exist; -1 if they exist before."""
    remaining = set(wanted)
    return max((i for i, values in enumerate(made) if not remaining.isdisjoint(values)), default=-1)


class OutputHook(nn.Module):
    """What the function of a micro-batch calls as soon as its outputs are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.listener: Callable[[Sequence[Tensor]], None] | None = None
        self.n_calls = 0

    @property
    def has_listener(self) -> bool:
        return self.listener is not None

    def forward(self, *outputs: Tensor) -> None:
        self.n_calls += 1
        if self.listener is not None:
            self.listener(outputs)


def with_hook(step: CapturedStep, hook: OutputHook) -> fx.GraphModule:
    """The step as a module that calls the hook after the last output."""
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    graph.output(graph.graph_copy(step.graph, copies))
    module = step.with_graph(graph).module()
    module.add_module(_HOOK, hook)
    results = step.results()
    outputs = [copies[results[position]] for position, _ in step.results_of_kind(OUTPUT)]
    order = {node: index for index, node in enumerate(graph.nodes)}
    with graph.inserting_after(max(outputs, key=order.__getitem__)):
        graph.call_module(_HOOK, tuple(outputs))
    module.recompile()
    return module


class SentOutputs:
    """Pinned memory for all outputs of a call, and the copies that a recorded graph makes."""

    def __init__(self, device: torch.device, like: Outputs):
        self._device = device
        self._stream = torch.cuda.Stream(device)
        # Recorded by each replay of the graph, not only while it is captured.
        self._arrived = torch.cuda.Event(external=True)
        self._pinned = [
            [torch.empty_like(tensor, device="cpu", pin_memory=True) for tensor in outputs]
            for outputs in like
        ]
        self._n_sent = 0

    @staticmethod
    def fit(like: Outputs) -> bool:
        """Whether the outputs are small."""
        return sum(tensor.nbytes for outputs in like for tensor in outputs) <= _MOST_BYTES

    def send(self, outputs: Sequence[Tensor]) -> None:
        """Record the copies of the next micro-batch's outputs, beside what follows."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for target, output in zip(self._pinned[self._n_sent], outputs, strict=True):
                target.copy_(output, non_blocking=True)
        self._n_sent += 1
        if self._n_sent == len(self._pinned):
            self._arrived.record(self._stream)

    def end(self) -> None:
        """What is recorded next on the current stream comes after the copies."""
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def received(self) -> list[list[Tensor]]:
        """The outputs of each micro-batch of the last replay, as soon as they are all there."""
        self._arrived.synchronize()
        return [[tensor.clone() for tensor in outputs] for outputs in self._pinned]

"""Outputs on their way from a GPU to the host while the rest of a recorded step still runs.

A call of a training step needs the outputs of forward; gradients and the update only have to be
complete before the next step reads the weights. So the recorded graph copies outputs to pinned
memory on a separate stream as soon as they are computed, and records an event after the last ones.
A call waits for that event, and the host prepares the next call while the GPU trains:

    GPU   inputs │ forward │ backward │ update │ inputs │ forward │ …
    copies                 └ outputs                    └ outputs
    host  ……… waits ………………… returns │ stages the next inputs │ waits …
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor, fx, nn

from tremula.ir.output_facts import output_facts
from tremula.ir.step import INPUT, OUTPUT, CapturedStep

_MOST_BYTES = 4 << 20  # of all outputs of a call: larger ones take memory and time on the host
_HOOK = "output_hook"  # the module's name
Outputs = Mapping[int, Sequence[Tensor]]  # by the number of the micro-batch


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
    """Pinned memory for outputs of a call, and the copies that a recorded graph makes.

    `like` has the outputs of those micro-batches that are read, as tensors without memory.
    """

    def __init__(self, device: torch.device, like: Outputs):
        self._device = device
        self._stream = torch.cuda.Stream(device)
        # Recorded by each replay of the graph, not only while it is captured.
        self._arrived = torch.cuda.Event(external=True)
        self._pinned = {
            number: [torch.empty_like(x, device="cpu", pin_memory=True) for x in outputs]
            for number, outputs in like.items()
        }
        self._n_computed = 0  # micro-batches

    @staticmethod
    def fit(like: Outputs) -> bool:
        """Whether there are outputs, and they are small."""
        n_bytes = sum(tensor.nbytes for outputs in like.values() for tensor in outputs)
        return bool(like) and n_bytes <= _MOST_BYTES

    def send(self, outputs: Sequence[Tensor]) -> None:
        """Record the copies of the next micro-batch's outputs, beside what follows."""
        number, self._n_computed = self._n_computed, self._n_computed + 1
        if number not in self._pinned:
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for target, output in zip(self._pinned[number], outputs, strict=True):
                target.copy_(output, non_blocking=True)
        if number == max(self._pinned):
            self._arrived.record(self._stream)

    def end(self) -> None:
        """What is recorded next on the current stream comes after the copies."""
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def received(self) -> dict[int, list[Tensor]]:
        """The outputs of the last replay by micro-batch, as soon as they are all there."""
        self._arrived.synchronize()
        return {n: [x.clone() for x in outputs] for n, outputs in self._pinned.items()}

"""Bodies of loops and branches: functions captured as graphs of their own, known by a text key."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import _disable_current_modes as _outside_the_recording

from tremula.ir.capture.recorder import Recorder
from tremula.ir.capture.recording import Recording
from tremula.ir.errors import CaptureError
from tremula.ir.step import INPUT, OUTPUT, CapturedStep, Slot


@dataclass
class Body:
    """A captured function: its step, ready for both executions, and its compiled host form."""

    step: CapturedStep
    _host: dict[torch.device, Callable[..., list[Tensor]]] = field(default_factory=dict)

    def results(self) -> list[Tensor]:
        """The fake tensors the function gave."""
        return [node.meta["val"] for node in self.step.results()]

    def on_host(self, device: torch.device) -> Callable[..., list[Tensor]]:
        """The function of real tensors on a device."""
        if device not in self._host:
            self._host[device] = _host_form(self.step, device)
        return self._host[device]


# The operations of loops hold keys: a key tells all of its body, so equal bodies are one.
_bodies: dict[str, Body] = {}
_BODY_ARGUMENTS = ("body", "then_body", "else_body")


def body_of(key: str) -> Body:
    return _bodies[key]


class _BodyRecorder(Recorder):
    """Records a body beside the step: what the step around it holds becomes a further input."""

    def __init__(self, state: Recording, around: Recorder):
        super().__init__(state, around.fakes)
        self.around = around
        self.known_constants = around.known_constants
        self.captured: list[Tensor] = []

    def _run(self, func: Callable, args: tuple, kwargs: dict) -> object:
        with _outside_the_recording(), self.fakes:  # the recorder around must not see it
            return func(*args, **kwargs)

    def _inside(self, value: object) -> object:
        if isinstance(value, Tensor) and not self.knows(value) and self.holds(value):
            self.captured.append(value)
            self.placeholder(f"captured_{len(self.captured) - 1}", value)
        return super()._inside(value)

    def holds(self, value: Tensor) -> bool:
        """Whether the step around, or one around that, knows the tensor."""
        around = self.around
        if around.knows(value):
            return True
        return isinstance(around, _BodyRecorder) and around.holds(value)


def capture_body(
    state: Recording, function: Callable[..., Any], inputs: list[Tensor]
) -> tuple[str, list[Tensor]]:
    """Record function(*inputs): the key of its body, and the outer tensors that it reads, too.

    Inputs go in by value: what the function writes to them is not seen outside.
    """
    around = state.recorder
    recorder = _BodyRecorder(state, around)
    with _outside_the_recording(), recorder.fakes:
        own = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype) for x in inputs]
    for index, fake in enumerate(own):
        recorder.placeholder(f"input_{index}", fake)
    state.recorder = recorder
    try:
        with recorder, torch.no_grad():
            found = function(*own)
        results = [found] if isinstance(found, Tensor) else list(found)
        nodes = [_node_of(recorder, result) for result in results]
    finally:
        state.recorder = around
    with _outside_the_recording(), torch._C.DisableTorchFunction():
        step = _step_of(recorder, nodes, len(inputs))
        key = _key_of(step)
    _bodies.setdefault(key, Body(step))
    return key, recorder.captured


def _node_of(recorder: _BodyRecorder, result: Any) -> fx.Node:  # noqa: ANN401
    if not isinstance(result, Tensor):
        raise CaptureError(f"A body of a loop or branch must give tensors, got {result!r}.")
    inside = recorder._inside(result)
    assert isinstance(inside, Tensor), "a tensor stays one"
    return recorder.node_of(inside)


def _step_of(recorder: _BodyRecorder, results: list[fx.Node], n_inputs: int) -> CapturedStep:
    from tremula.ir.passes import COMMON_PASSES, apply

    inputs = [n for n in recorder.graph.nodes if n.op == "placeholder"]
    captured = inputs[n_inputs:]
    recorder.graph.output([*results, *(recorder.node_of(t) for t in recorder.captured)])
    slots = tuple(Slot(INPUT, i, n.name) for i, n in enumerate(inputs))
    outputs = [Slot(OUTPUT, i, f"output_{i}") for i in range(len(results))]
    outputs += slots[n_inputs:]  # functionalisation leaves only those that were written
    step = CapturedStep(recorder.graph, recorder.constants, slots, tuple(outputs), ())
    step = apply(step, COMMON_PASSES)
    written = [slot for slot in step.outputs if slot.kind == INPUT]
    if written:
        raise CaptureError(
            f"A body of a loop or branch writes a tensor of the model around it"
            f" ({captured[written[0].index - n_inputs].name}), which would be lost.",
            hint="pass it as an input and return its new value",
        )
    return step


def _key_of(step: CapturedStep) -> str:
    """A digest of everything the body computes."""
    text = [str(node.format_node()) for node in step.graph.nodes]
    text += [str(node.args) for node in step.graph.nodes if node.op == "output"]
    text += [
        f"{value.dtype}{tuple(value.shape)}"
        for node in step.graph.nodes
        if isinstance(value := node.meta.get("val"), Tensor)
    ]
    digest = hashlib.sha256("\n".join(text).encode())
    for name, value in sorted(step.constants.items()):
        digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
        digest.update(
            value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        )
    return digest.hexdigest()[:24]


def _host_form(step: CapturedStep, device: torch.device) -> Callable[..., list[Tensor]]:
    from tremula.ir.passes.split import drop_markers, micro_batch_part, on_device

    return on_device(drop_markers(micro_batch_part(step)), device).module().forward


def bodies_in(node: fx.Node) -> list[CapturedStep]:
    """The bodies of a loop or a branch; none of any other node."""
    schema = getattr(node.target, "_schema", None)
    named = zip(schema.arguments if schema else (), node.args, strict=False)
    keys = [value for argument, value in named if argument.name in _BODY_ARGUMENTS]
    return [_bodies[str(key)].step for key in keys if key in _bodies]


def all_nodes(step: CapturedStep) -> Iterator[fx.Node]:
    """The nodes of a step and of all bodies in it."""
    for node in step.graph.nodes:
        yield node
        for body in bodies_in(node):
            yield from all_nodes(body)

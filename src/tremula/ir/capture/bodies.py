"""Captures loops and branches: their bodies are functions recorded as separate steps."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, fx
from torch._C import _len_torch_function_stack
from torch._ops import OpOverload
from torch.overrides import _pop_mode_temporarily
from torch.utils._python_dispatch import _disable_current_modes as _outside_the_recording

from tremula.ir.bodies import Body, HostForm, body_of, enter_body
from tremula.ir.errors import CaptureError
from tremula.ir.ops import control as control_ops  # noqa: F401  registers tremula::for_loop
from tremula.ir.passes import COMMON_PASSES, HOST_PASSES, apply
from tremula.ir.passes.half_as_float import has_halves, widen_halves
from tremula.ir.passes.split import on_device
from tremula.ir.recorder import Recorder
from tremula.ir.recording import Recording
from tremula.ir.step import INPUT, OUTPUT, CapturedStep, StepSlot, bytes_of


def record_loop(
    state: Recording, count: int, body: Callable[..., object], inputs: list[Tensor]
) -> list[Tensor]:
    """A loop that runs in the program: each round's results are the next round's inputs."""
    key, captured = capture_body(state, body, inputs)
    result = body_of(key).results()
    if len(result) != len(inputs):
        raise CaptureError(
            f"The body of a loop gives {len(result)} tensors, but takes {len(inputs)}.",
            hint="return a new value for each input",
        )
    _check_state(inputs, result)
    return torch.ops.tremula.for_loop(inputs, captured, count, key)


def _check_state(before: list[Tensor], after: list[Tensor]) -> None:
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise CaptureError(
                f"The body of a loop turns its input {index} from {_kind(old)} to"
                f" {_kind(new)}: shapes and types must stay.",
                hint="cast or reshape the value before it is returned",
            )


def record_while(
    state: Recording,
    condition: Callable[..., Tensor],
    body: Callable[..., object],
    inputs: list[Tensor],
) -> list[Tensor]:
    """A loop that the program ends by a condition it computes before every round."""
    condition_key, condition_captured = capture_body(state, condition, inputs)
    key, captured = capture_body(state, body, inputs)
    _check_state(inputs, body_of(key).results())
    return torch.ops.tremula.while_loop(inputs, condition_captured, captured, condition_key, key)


def record_scan(
    state: Recording,
    body: Callable[..., object],
    inputs: list[Tensor],
    rows: list[Tensor],
    count: int,
    *,
    is_reversed: bool = False,
) -> list[Tensor]:
    """A loop over rows: body(*state, *row of each) returns the new state, and a row of each result.

    Gives the last state, then the rows of results together.
    """
    key, captured = capture_body(state, body, [*inputs, *(row[0] for row in rows)])
    _check_state(inputs, body_of(key).results()[: len(inputs)])
    return torch.ops.tremula.scan(inputs, rows, captured, count, is_reversed, key)


def record_function(state: Recording, body: Callable[..., object], inputs: list[Tensor]) -> str:
    """A function of the program, for inputs like these: the key that `tremula::call` takes."""
    key, captured = capture_body(state, body, inputs)
    if captured:
        raise CaptureError(
            f"A function reads {len(captured)} tensors of the step around it, besides its inputs.",
            hint="pass them as inputs",
        )
    return key


def record_cond(
    state: Recording,
    condition: Tensor,
    then_body: Callable[..., object],
    then_inputs: list[Tensor],
    else_body: Callable[..., object],
    else_inputs: list[Tensor],
) -> list[Tensor]:
    """A branch that is taken in the program: both are captured, one runs."""
    then_key, then_more = capture_body(state, then_body, then_inputs)
    else_key, else_more = capture_body(state, else_body, else_inputs)
    kinds = [[_kind(value) for value in body_of(key).results()] for key in (then_key, else_key)]
    if len(kinds[0]) != len(kinds[1]):
        raise CaptureError(
            f"The branches of a condition give {len(kinds[0])} and {len(kinds[1])} tensors:"
            " both must give the same number of outputs."
        )
    if kinds[0] != kinds[1]:
        raise CaptureError(
            f"The branches of a condition give {kinds[0]} and {kinds[1]}: shapes and types must"
            " be the same."
        )
    return torch.ops.tremula.cond(
        condition, [*then_inputs, *then_more], [*else_inputs, *else_more], then_key, else_key
    )


def _kind(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


class _BodyRecorder(Recorder):
    """Records a body apart from the step: tensors of the step around it become further inputs."""

    def __init__(self, state: Recording, around: Recorder):
        super().__init__(state, around.fakes)
        self.around = around
        self.known_constants = around.known_constants
        self.captured: list[Tensor] = []

    def _run(self, func: OpOverload, args: tuple, kwargs: dict) -> object:
        with _outside_the_recording(), self.fakes:  # the recorder around must not see it
            return super()._run(func, args, kwargs)

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
            matches = function(*own)
        results = [matches] if isinstance(matches, Tensor) else list(matches)
        nodes = [_node_of(recorder, result) for result in results]
    finally:
        state.recorder = around
    with _outside_the_recording(), _without_rules():
        step = _step_of(recorder, nodes, len(inputs))
        key = _key_of(step)
    enter_body(key, Body(step, _host_form))
    return key, recorder.captured


@contextmanager
def _without_rules() -> Iterator[None]:
    """Outside of all function modes. Disabling them is not enough: fakes allocate then for real."""
    with ExitStack() as stack:
        for _ in range(_len_torch_function_stack()):
            stack.enter_context(_pop_mode_temporarily())
        stack.enter_context(torch._C.DisableTorchFunctionSubclass())
        yield


def _node_of(recorder: _BodyRecorder, result: object) -> fx.Node:
    if not isinstance(result, Tensor):
        raise CaptureError(f"A body of a loop or branch must give tensors, got {result!r}.")
    inside = recorder._inside(result)
    assert isinstance(inside, Tensor), "a tensor stays one"
    return recorder.node_of(inside)


def _step_of(recorder: _BodyRecorder, results: list[fx.Node], n_inputs: int) -> CapturedStep:
    inputs = [n for n in recorder.graph.nodes if n.op == "placeholder"]
    captured = inputs[n_inputs:]
    recorder.graph.output([*results, *(recorder.node_of(t) for t in recorder.captured)])
    slots = tuple(StepSlot(INPUT, i, n.name) for i, n in enumerate(inputs))
    outputs = [StepSlot(OUTPUT, i, f"output_{i}") for i in range(len(results))]
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
        digest.update(bytes_of(value))
    return digest.hexdigest()[:24]


def _host_form(step: CapturedStep, device: torch.device) -> HostForm:
    part = apply(step, HOST_PASSES, "host")
    if device.type == "cpu" and has_halves(part):
        part = widen_halves(part)
    return on_device(part, device).module().forward

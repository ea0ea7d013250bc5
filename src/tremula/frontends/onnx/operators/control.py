"""Branches and loops. What is known decides at once; the rest becomes part of the program."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from tremula.frontends.onnx.context import BodyGraph, NodeContext, known
from tremula.frontends.onnx.element_types import element_type
from tremula.frontends.onnx.errors import UnsupportedOnnx
from tremula.frontends.onnx.table import operator
from tremula.ir.capture.bodies import record_cond
from tremula.ir.recording import active

MAX_ROUNDS = 4096  # of a loop that is unrolled into a program


@operator("If")
def branch(
    condition: Tensor, *, then_branch: BodyGraph, else_branch: BodyGraph, context: NodeContext
) -> tuple[Any, ...]:
    """One of two graphs; if the condition is computed, a branch of the program."""
    if not isinstance(condition, FakeTensor):
        chosen = then_branch if bool(condition.reshape(())) else else_branch
        return tuple(context.run_body(chosen, []))

    def run(graph: BodyGraph) -> list[Tensor]:
        return [context.bring_in(value) for value in context.run_body(graph, [])]

    recording = active()
    if recording is not None and not recording.training:
        bodies = [lambda g=graph: run(g) for graph in (then_branch, else_branch)]
        return tuple(record_cond(recording, condition, bodies[0], [], bodies[1], []))
    chosen = condition.reshape(())
    pairs = zip(run(then_branch), run(else_branch), strict=True)
    return tuple(torch.where(chosen, a, b) for a, b in pairs)


@operator("Loop", decides=("count", "condition"))
def loop(
    count: Tensor | None,
    condition: Tensor | None,
    *state: object,
    body: BodyGraph,
    context: NodeContext,
) -> tuple[Any, ...]:
    """Rounds of a graph, as many as a number and a condition say."""
    n_state = len(state)
    rounds = _Rounds(context, body, n_state)
    limit = None if count is None else int(_known_value(count, "the trip count"))
    is_open = True if condition is None else condition
    values, number = list(state), 0
    while limit is None or number < limit:
        if isinstance(is_open, FakeTensor):
            return tuple(rounds.masked(values, is_open, number, limit))
        if not bool(is_open):
            break
        rounds.reject_many(number)
        is_open, values = rounds.run(number, is_open, values)
        number += 1
    return (*values, *rounds.stacked())


class _Rounds:
    """Runs the body of a loop, and keeps what each round adds to the scan outputs."""

    def __init__(self, context: NodeContext, body: BodyGraph, n_state: int):
        self.context, self.body, self.n_state = context, body, n_state
        self.scans: list[list[Tensor]] = [[] for _ in body.outputs[n_state + 1 :]]

    def run(self, number: int, is_open: object, values: list[Any]) -> tuple[Any, list[Any]]:
        step = known(np.array(number, np.int64))
        entered = is_open if isinstance(is_open, Tensor) else known(np.array(True))
        result = self.context.run_body(self.body, [step, entered, *values])
        for scan, value in zip(self.scans, result[self.n_state + 1 :], strict=True):
            scan.append(value)
        return result[0], result[1 : self.n_state + 1]

    def reject_many(self, number: int) -> None:
        if self.context.device is not None and number >= MAX_ROUNDS:
            raise UnsupportedOnnx(f"A Loop of more than {MAX_ROUNDS} rounds cannot be compiled.")

    def masked(
        self, values: list[Any], is_open: Tensor, number: int, limit: int | None
    ) -> list[Any]:
        """All rounds there can be; after the last that counts, values stay as they are."""
        if limit is None or self.scans:
            raise UnsupportedOnnx(
                "A Loop whose condition is computed needs a trip count that is known, and no scan"
                " outputs, to be compiled.",
                hint="give it a constant trip count; on the host, run it uncompiled",
            )
        bring_in, values = self.context.bring_in, [self.context.bring_in(v) for v in values]
        for step in range(number, limit):
            self.reject_many(step)
            again, result = self.run(step, is_open, values)
            values = [
                torch.where(is_open, bring_in(new), old)
                for new, old in zip(result, values, strict=True)
            ]
            is_open = torch.logical_and(is_open, bring_in(again))
        return values

    def stacked(self) -> list[Any]:
        infos = self.body.outputs[self.n_state + 1 :]
        return [
            _stack(self.context, scan) if scan else _nothing(info)
            for scan, info in zip(self.scans, infos, strict=True)
        ]


def _stack(context: NodeContext, values: list[Tensor], axis: int = 0) -> Tensor:
    if any(isinstance(value, FakeTensor) for value in values):
        values = [context.bring_in(value) for value in values]
    return torch.stack(values, axis)


def _nothing(info: Any) -> Tensor:  # noqa: ANN401 - a ValueInfo
    """A scan output of no rounds."""
    sizes = [size if isinstance(size, int) else 0 for size in info.shape or ()]
    empty = known(np.zeros((0, *sizes), np.float32))
    return empty.to(element_type(info.type).tensor_type) if info.type else empty


def _known_value(value: Tensor, what: str) -> float:
    if isinstance(value, FakeTensor):
        raise UnsupportedOnnx(
            f"{what} depends on the model's inputs: it must be known when a model is compiled.",
            hint="make it a constant of the model; on the host, run it uncompiled",
        )
    return value.reshape(()).item()


@operator("Scan", since=9)
def scan(
    *operands: Tensor,
    body: BodyGraph,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
    context: NodeContext,
) -> tuple[Tensor, ...]:
    """A graph for each slice of its inputs, one after another."""
    n_state = len(operands) - num_scan_inputs
    axes = scan_input_axes or [0] * num_scan_inputs
    flips = scan_input_directions or [0] * num_scan_inputs
    inputs = [
        _slices(x, axis, bool(flip))
        for x, axis, flip in zip(operands[n_state:], axes, flips, strict=True)
    ]
    n_outputs = len(body.outputs) - n_state
    values, outputs = _scanned(context, body, list(operands[:n_state]), inputs)
    out_axes = scan_output_axes or [0] * n_outputs
    out_flips = scan_output_directions or [0] * n_outputs
    joined = [
        _stack(context, result[::-1] if flip else result, axis)
        for result, axis, flip in zip(outputs, out_axes, out_flips, strict=True)
    ]
    return (*values, *joined)


def _slices(x: Tensor, axis: int, reverse: bool) -> Callable[[int], Tensor] | list[Tensor]:
    result = list(torch.unbind(x, axis))
    return result[::-1] if reverse else result


def _scanned(
    context: NodeContext, body: BodyGraph, values: list[Any], inputs: Sequence[Any]
) -> tuple[list[Any], list[list[Tensor]]]:
    n_state = len(values)
    outputs: list[list[Tensor]] = [[] for _ in body.outputs[n_state:]]
    for slices in zip(*inputs, strict=True):
        result = context.run_body(body, [*values, *slices])
        values = result[:n_state]
        for output, value in zip(outputs, result[n_state:], strict=True):
            output.append(value)
    return values, outputs


@operator("Scan", since=8, until=8, static=("lengths",))
def scan_8(
    lengths: Tensor | None,
    *operands: Tensor,
    body: BodyGraph,
    num_scan_inputs: int,
    directions: list[int] | None = None,
    context: NodeContext,
) -> tuple[Tensor, ...]:
    """A scan for each element of a batch; sequences may differ in length."""
    n_state = len(operands) - num_scan_inputs
    n_batch, n_steps = operands[-1].shape[:2]
    flips = directions or [0] * num_scan_inputs
    results: list[list[Tensor]] = [[] for _ in body.outputs]
    for i in range(n_batch):
        n = n_steps if lengths is None else int(lengths[i])
        inputs = [
            _slices(x[i, :n], 0, bool(flip))
            for x, flip in zip(operands[n_state:], flips, strict=True)
        ]
        values, outputs = _scanned(context, body, [x[i] for x in operands[:n_state]], inputs)
        joined = [_filled(_stack(context, matches), n_steps) for matches in outputs]
        for result, value in zip(results, (*values, *joined), strict=True):
            result.append(value)
    return tuple(_stack(context, result) for result in results)


def _filled(x: Tensor, n_steps: int) -> Tensor:
    """With zeros up to the longest sequence."""
    missing = n_steps - x.shape[0]
    return torch.cat([x, x.new_zeros(missing, *x.shape[1:])]) if missing else x

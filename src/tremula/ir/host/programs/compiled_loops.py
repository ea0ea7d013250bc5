"""Bodies of loops compiled by Inductor: several rounds at once, so that calls cost little."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from tremula.ir.bodies import Body, body_of, enter_body
from tremula.ir.host.compile_isolation import traced
from tremula.ir.host.passes.substitute_kernels import use_fast_tanh
from tremula.ir.ops import control as control_ops  # noqa: F401  registers tremula::scan
from tremula.ir.passes import HOST_PASSES, Passes, apply
from tremula.ir.passes.split import on_device
from tremula.ir.step import CapturedStep

_MAX_NODES = 400  # of a function that Inductor compiles for several rounds
_MAX_ROUNDS = 16
_PASSES: Passes = (*HOST_PASSES, ("use a fast tanh", use_fast_tanh))


def compile_scans(part: CapturedStep) -> None:
    """Compile the scans of a step; other loops run node by node."""
    for node in part.graph.nodes:
        if node.target is torch.ops.tremula.scan.default:
            *others, key = node.args
            body, new_key = body_of(str(key)), f"{key}-inductor"  # other programs run the plain one
            enter_body(new_key, replace(body, scan=CompiledScan(body).run))
            node.args = (*others, new_key)


class CompiledScan:
    """A scan in stretches of several rounds, each one call of compiled code."""

    def __init__(self, body: Body):
        self.body = body
        n_nodes = max(1, len(body.step.graph.nodes))
        self.n_rounds = max(1, min(_MAX_ROUNDS, _MAX_NODES // n_nodes))
        self._compiled: dict[tuple[int, bool, torch.device], Callable] = {}

    def run(
        self, state: list[Tensor], rows: list[Tensor], captured: list[Tensor], count: int,
        is_reversed: bool,
    ) -> list[Tensor]:  # fmt: skip
        """The last state, and the rows of results."""
        n, stretches = len(state), _stretches(count, self.n_rounds, is_reversed)
        made: list[list[Tensor]] = []
        for begin, size in stretches:
            parts = [row[begin : begin + size] for row in rows]
            result = self._call(size, is_reversed, n, [*state, *parts, *captured], len(rows))
            state = result[:n]
            made.append(result[n:])
        if is_reversed:
            made.reverse()
        return [*state, *(torch.cat(parts) for parts in zip(*made, strict=True))]

    def _call(
        self, size: int, is_reversed: bool, n_state: int, inputs: list[Tensor], n_rows: int
    ) -> list[Tensor]:
        inputs = [x.contiguous() for x in inputs]
        device = inputs[0].device
        key = size, is_reversed, device
        if key not in self._compiled:
            step = on_device(apply(self.body.step, _PASSES, "host"), device)
            rounds = partial(_rounds, step.module().forward, n_state, n_rows, size, is_reversed)
            self._compiled[key] = _compiled(rounds, inputs, is_native=_can_be_native(step, device))
        with torch.no_grad():
            return list(self._compiled[key](*inputs))


def _can_be_native(step: CapturedStep, device: torch.device) -> bool:
    """Whether kernels can be called from C++: operations of `tremula` are called through Python."""
    fast_tanh = torch.ops.tremula.fast_tanh.default  # Inductor makes a kernel of it
    return device.type == "cpu" and all(
        node.target is fast_tanh or node.target.namespace in ("aten", "prims")
        for node in step.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
    )


def _compiled(rounds: Callable, inputs: list[Tensor], *, is_native: bool) -> Callable:
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    with torch.no_grad(), config.patch(cpp_wrapper=is_native):
        made = compile_fx(
            traced(rounds, *inputs, tracing_mode="fake", _allow_non_fake_inputs=True), inputs
        )
    assert callable(made), "a graph without other graphs in it is one function"
    return made


def _stretches(count: int, size: int, is_reversed: bool) -> list[tuple[int, int]]:
    """(first row, number of rows) in the order they are worked on."""
    result = [(begin, min(size, count - begin)) for begin in range(0, count, size)]
    return result[::-1] if is_reversed else result


def _rounds(
    body: Callable, n_state: int, n_rows: int, size: int, is_reversed: bool, *inputs: Tensor
) -> list[Tensor]:
    """Several rounds of a body, written out."""
    state, rows = list(inputs[:n_state]), inputs[n_state : n_state + n_rows]
    captured = inputs[n_state + n_rows :]
    made: list[Sequence[Tensor]] = []
    for i in reversed(range(size)) if is_reversed else range(size):
        result = list(body(*state, *(row[i] for row in rows), *captured))
        state, others = result[:n_state], result[n_state:]
        made.append(others)
    if is_reversed:
        made.reverse()
    return [*state, *(torch.stack(list(parts)) for parts in zip(*made, strict=True))]

"""Gradients of loops: rounds are repeated, saving what each began with; then rounds backwards.

A loop carries values c from round to round, and reads others, w, in all of them:

    forward      c₀ ─► c₁ ─► … ─► cₙ            each round is the graph that is repeated
    repeated     saves c₀ … cₙ₋₁ as rows of one tensor each
    backwards    dcₙ ─► … ─► dc₀, and dw as the sum over rounds, by the gradient of that graph

The original refuses to differentiate loops.
"""

from collections.abc import Sequence
from typing import Protocol

from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.registry import apply
from tremula.frontends.popxl.core.tensor import Tensor
from tremula.frontends.popxl.dtypes import int32
from tremula.frontends.popxl.transforms.grad_info import ExpectedConnectionType, GradGraphInfo

Grads = Sequence[Tensor | None]


class Differentiation(Protocol):
    """What a loop asks of the gradient graph around it."""

    def forward(self, t: Tensor) -> Tensor: ...
    def info_of(
        self, called: Graph, have: list[Tensor], wanted: tuple[int, ...]
    ) -> GradGraphInfo: ...


def loop_gradient(ctx: Differentiation, op: Op, gradients: Grads, wanted: tuple[int, ...]) -> Grads:
    """Gradients by the wanted inputs of a loop, given those by its outputs."""
    body: Graph = op.graphs[0]
    if body.by_ref_inputs or op.attributes["modified"]:
        raise popart_exception(
            f"Loop ({op.outputs[0].id}) writes some of its inputs, so it cannot be differentiated",
            hint="return new values instead of writing inputs",
        )
    n, count = len(body.outputs), op.attributes["repeat_count"]
    if not count:
        return [gradients[i] if i < n else None for i in wanted]
    return _Backwards(ctx, op, gradients, wanted).run()


class _Backwards:
    """The two loops of one gradient."""

    def __init__(self, ctx: Differentiation, op: Op, gradients: Grads, wanted: tuple[int, ...]):
        self.op, self.gradients, self.wanted = op, gradients, wanted
        self.body: Graph = op.graphs[0]
        self.n, self.count = len(self.body.outputs), op.attributes["repeat_count"]
        self.carried = [i for i in range(self.n) if self.body.inputs[i].dtype.is_float]
        self.read = [i for i in wanted if i >= self.n]  # the same in all rounds
        self.inputs = [ctx.forward(t) for t in op.inputs]
        have = [self.body.outputs[i] for i in self.carried]
        self.info = ctx.info_of(self.body, have, (*self.carried, *self.read))

    def run(self) -> Grads:
        saved = self._keep_rounds()
        first = [_or_zeros(self.gradients[i], self.op.outputs[i]) for i in self.carried]
        first += [_zeros(self.op.inputs[i]) for i in self.read]
        last = apply("constant", self.count, int32)
        graph = self._backward_round(first, last, saved)
        result = apply("repeat", graph, self.count, *first, last, *saved, *self.inputs[self.n :])
        by_input = dict(zip([*self.carried, *self.read], result, strict=False))
        return [by_input[i] for i in self.wanted]

    def _keep_rounds(self) -> list[Tensor]:
        """What each round begins with, as rows: a tensor for each carried value."""
        carried, read = self.inputs[: self.n], self.inputs[self.n :]
        saved = [
            apply("init", (self.count, *t.shape), t.dtype, f"{t.name}_rounds") for t in carried
        ]
        start = apply("constant", 0, int32)
        graph = self._graph("rounds")
        with graph:
            own = _inputs_like(graph, carried)
            (number,) = _inputs_like(graph, [start])
            rows = _inputs_like(graph, saved, by_ref=True)
            others = _inputs_like(graph, read)
            for row, t in zip(rows, own, strict=True):
                new = apply("reshape", t, (1, *t.shape))
                apply("dynamic_update_", row, number, new, [0], [1], True)
            for t in apply("call", self.body, *own, *others):
                graph.mark_as_output(t)
            graph.mark_as_output(apply("add", number, 1))
        apply("repeat", graph, self.count, *carried, start, *saved, *read)
        return saved

    def _backward_round(self, first: list[Tensor], last: Tensor, saved: list[Tensor]) -> Graph:
        """Gradients behind a round → those before it; sums for what all rounds read."""
        graph = self._graph("rounds_bwd")
        with graph:
            own = _inputs_like(graph, first)
            (number,) = _inputs_like(graph, [last])
            rows = _inputs_like(graph, saved)
            others = _inputs_like(graph, self.inputs[self.n :])
            before = apply("sub", number, 1)
            began = [
                apply("reshape", apply("dynamic_slice", row, before, [0], [1], True), t.shape)
                for row, t in zip(rows, self.body.inputs, strict=False)
            ]
            forward = dict(zip(self.body.inputs, [*began, *others], strict=True))
            behind = dict(zip((self.body.outputs[i] for i in self.carried), own, strict=False))
            made = self._call_gradient(forward, behind)
            n = len(self.carried)
            totals = [apply("add", a, b) for a, b in zip(own[n:], made[n:], strict=True)]
            for t in (*made[:n], *totals, before):
                graph.mark_as_output(t)
        return graph

    def _call_gradient(
        self, forward: dict[Tensor, Tensor], behind: dict[Tensor, Tensor]
    ) -> list[Tensor]:
        values = {}
        for inner, e in zip(self.info.graph.inputs, self.info.expected_inputs, strict=True):
            is_grad = e.connection_type is ExpectedConnectionType.FwdGrad
            values[inner] = (behind if is_grad else forward)[e.fwd_tensor]
        return list(apply("call", self.info.graph, inputs_dict=values))

    def _graph(self, name: str) -> Graph:
        ir = self.body.ir
        base = self.body.id.rsplit("_subgraph(", 1)[0]
        return ir.create_empty_graph(f"{base}_{name}")


def _inputs_like(graph: Graph, tensors: Sequence[Tensor], by_ref: bool = False) -> list[Tensor]:
    made = []
    for t in tensors:
        own = graph.new_tensor(t.name, t.shape, t.dtype, t.meta_shape)
        graph.mark_input(own, by_ref)
        made.append(own)
    return made


def _zeros(t: Tensor) -> Tensor:
    return apply("init", t.shape, t.dtype, f"{t.name}_zeros", "zero", t.meta_shape)


def _or_zeros(grad: Tensor | None, t: Tensor) -> Tensor:
    return _zeros(t) if grad is None else grad

"""Gradients of graphs: a graph that computes them, and what it needs from a call of the first."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, overload

from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popxl.core.call_site import CallSiteInfo
from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.registry import apply
from tremula.frontends.popxl.core.table import record
from tremula.frontends.popxl.core.tensor import Constant, Tensor
from tremula.frontends.popxl.transforms.grad_info import (
    ExpectedConnection,
    ExpectedConnectionType,
    GradGraphInfo,
)
from tremula.frontends.popxl.transforms.loops import loop_gradient
from tremula.frontends.popxl.transforms.vjp import forward_of, gradient_row

PREFIX = "Gradient___"


@overload
def autodiff(
    graph: Graph,
    grads_provided: Iterable[Tensor] | None = None,
    grads_required: Iterable[Tensor] | None = None,
    called_graphs_grad_info: Mapping[Graph, GradGraphInfo] | None = None,
    return_all_grad_graphs: Literal[False] = False,
) -> GradGraphInfo: ...


@overload
def autodiff(
    graph: Graph,
    grads_provided: Iterable[Tensor] | None = None,
    grads_required: Iterable[Tensor] | None = None,
    called_graphs_grad_info: Mapping[Graph, GradGraphInfo] | None = None,
    *,
    return_all_grad_graphs: Literal[True],
) -> dict[Graph, GradGraphInfo]: ...


def autodiff(
    graph: Graph,
    grads_provided: Iterable[Tensor] | None = None,
    grads_required: Iterable[Tensor] | None = None,
    called_graphs_grad_info: Mapping[Graph, GradGraphInfo] | None = None,
    return_all_grad_graphs: bool = False,
) -> GradGraphInfo | dict[Graph, GradGraphInfo]:
    """The graph of a graph's gradients.

    Its first inputs are the gradients by `grads_provided` (by default all outputs), its outputs
    those by `grads_required` (by default all inputs), each in that order. All other inputs are
    tensors of the forward graph; those that were neither inputs nor outputs of it become outputs,
    also of every call that exists.
    """
    if graph.is_main:
        raise popart_exception("The main graph cannot be differentiated: put it into a graph")
    graph.ir.check_open()
    provided = list(graph.outputs if grads_provided is None else grads_provided)
    required = list(graph.inputs if grads_required is None else grads_required)
    _check(graph, provided, required)
    made: dict[Graph, GradGraphInfo] = {}
    info = _Differentiation(
        graph, provided, required, dict(called_graphs_grad_info or {}), made
    ).run()
    return {**made, graph: info} if return_all_grad_graphs else info


def _check(graph: Graph, provided: Sequence[Tensor], required: Sequence[Tensor]) -> None:
    for t in [*provided, *required]:
        if t.graph is not graph:
            raise ValueError(f"{t!r} is not a tensor of graph {graph.id}")
    for op in graph.ops:
        if op.row.modifies:
            raise popart_exception(
                f"The graph {graph.id} contains a modifying op, {op.kind}"
                f" ({', '.join(t.id for t in op.inputs)}), so it cannot be differentiated",
                hint="use the operation without an underscore",
            )


@dataclass
class _Differentiation:
    """One gradient graph being built, from the last operation to the first."""

    graph: Graph
    provided: list[Tensor]
    required: list[Tensor]
    known: dict[Graph, GradGraphInfo]
    made: dict[Graph, GradGraphInfo]
    grads: dict[Tensor, list[Tensor]] = field(default_factory=dict)
    mirrors: dict[Tensor, Tensor] = field(default_factory=dict)  # forward tensor → its input here
    expected: list[ExpectedConnection] = field(default_factory=list)

    def run(self) -> GradGraphInfo:
        ir = self.graph.ir
        base = self.graph.id.rsplit("_subgraph(", 1)[0]
        self.own = ir.create_empty_graph(f"{base}_bwd")
        self.recomputes = any(op.kind != "Call" for op in self.graph.call_sites)
        with self.own:
            for t in self.provided:
                grad = self.own.new_tensor(PREFIX + t.name, t.shape, t.dtype, t.meta_shape)
                self.own.mark_input(grad)
                self.grads.setdefault(t, []).append(grad)
                self.expected.append(ExpectedConnection(ExpectedConnectionType.FwdGrad, t))
            depends = self._dependent()
            for op in reversed(self.graph.ops):
                self._visit(op, depends)
            for t in self.required:
                self.own.mark_as_output(_or_zeros(self._total(t), t))
        self._stitch()
        outputs = [ExpectedConnection(ExpectedConnectionType.FwdGrad, t) for t in self.required]
        return GradGraphInfo(self.own, self.graph, tuple(self.expected), tuple(outputs))

    def _dependent(self) -> set[Tensor]:
        """Tensors that change with a required one."""
        result = set(self.required)
        for op in self.graph.ops:
            if any(t in result for t in op.inputs) and op.kind not in {"Detach", "DetachInplace"}:
                result.update(t for t in op.outputs if t.dtype.is_float or t.dtype.is_complex)
        return result

    def _total(self, t: Tensor) -> Tensor | None:
        """The gradient by a tensor: the sum of what its uses gave."""
        parts = self.grads.get(t)
        if not parts:
            return None
        if len(parts) > 1:
            self.grads[t] = parts = [named(apply("sum_of", parts), t)]
        return parts[0]

    def _visit(self, op: Op, depends: set[Tensor]) -> None:
        wanted = tuple(i for i, t in enumerate(op.inputs) if t in depends and t.dtype.is_float)
        totals = [self._total(t) for t in op.outputs]
        if not wanted or all(grad is None for grad in totals):
            return
        result = self._gradients(op, totals, wanted)
        for i, grad in zip(wanted, result, strict=True):
            if grad is not None:
                self.grads.setdefault(op.inputs[i], []).append(grad)

    def _gradients(
        self, op: Op, gradients: list[Tensor | None], wanted: tuple[int, ...]
    ) -> Sequence[Tensor | None]:
        if op.row.gradient is not None:
            return op.row.gradient(self, op, gradients, wanted)
        if op.kind == "Call":
            return self._call(op, gradients, wanted)
        if op.kind == "If":
            return self._branch(op, gradients, wanted)
        if op.kind == "Loop":
            return loop_gradient(self, op, gradients, wanted)
        if op.row.compute is None or op.row.is_collective:
            raise popart_exception(
                f"{op.kind} ({op.outputs[0].id if op.outputs else op.graph.id}) has no gradient",
                hint=_ADVICE.get(op.kind, "keep it out of graphs that are differentiated"),
            )
        have = tuple(i for i, grad in enumerate(gradients) if grad is not None)
        forward = forward_of(op, wanted, have)
        grads = [grad for grad in gradients if grad is not None]
        inputs = [*grads, *(self.forward(op.inputs[i]) for i in forward.saved)]
        n = len(grads)
        layout = (("grads", list(range(n))), ("saved", list(range(n, len(inputs)))))
        specs = [(op.inputs[i].shape, op.inputs[i].dtype) for i in wanted]
        names = [PREFIX + op.inputs[i].name for i in wanted]
        return record(gradient_row(op), inputs, layout, {"forward": forward}, specs, names=names)

    def forward(self, t: Tensor) -> Tensor:
        """A forward tensor in the gradient graph: a copy if it is constant, else an input."""
        if t in self.mirrors:
            return self.mirrors[t]
        if isinstance(t, Constant):
            own = apply("constant", t.data, t.dtype, t.name)
        elif self.recomputes and t not in self.graph.inputs and t.producer is not None:
            own = self._recomputed(t)
        else:
            own = self.own.new_tensor(t.name, t.shape, t.dtype, t.meta_shape)
            self.own.mark_input(own)
            self.expected.append(ExpectedConnection(ExpectedConnectionType.Fwd, t))
        self.mirrors[t] = own
        return own

    def _recomputed(self, t: Tensor) -> Tensor:
        """The operation that makes a tensor, repeated: its graph cannot have more outputs."""
        op = t.producer
        assert op is not None, "an input of a graph is not recomputed"
        inputs = [self.forward(other) for other in op.inputs]
        specs = [(out.shape, out.dtype) for out in op.outputs]
        names = [out.name for out in op.outputs]
        outputs = record(op.row, inputs, op.layout, op.attributes, specs, op.graphs, names)
        self.mirrors.update(zip(op.outputs, outputs, strict=True))
        return self.mirrors[t]

    # -- calls --

    def _call(
        self, op: Op, gradients: list[Tensor | None], wanted: tuple[int, ...]
    ) -> Sequence[Tensor | None]:
        called: Graph = op.graphs[0]
        have = [t for t, grad in zip(called.outputs, gradients, strict=True) if grad is not None]
        info = self.known.get(called) or self.info_of(called, have, wanted)
        grads = dict(zip(called.outputs, gradients, strict=False))
        site = CallSiteInfo(op)
        inputs: dict[Tensor, Tensor] = {}
        for inner, e in zip(info.graph.inputs, info.expected_inputs, strict=True):
            if e.connection_type is ExpectedConnectionType.FwdGrad:
                inputs[inner] = _or_zeros(grads.get(e.fwd_tensor), e.fwd_tensor)
            else:
                inputs[inner] = self.forward(site.graph_to_parent(e.fwd_tensor))
        made = apply("call", info.graph, inputs_dict=inputs)
        by = {e.fwd_tensor: out for e, out in zip(info.expected_outputs, made, strict=True)}
        return [by.get(called.inputs[i]) for i in wanted]

    def info_of(self, called: Graph, have: list[Tensor], wanted: tuple[int, ...]) -> GradGraphInfo:
        """The gradient graph of a graph called, made once for all its calls."""
        if not called.is_differentiable:
            raise popart_exception(
                f"Graph {called.id} is marked as unsafe to autodiff as a part of {self.graph.id}",
                hint="give its gradient by called_graphs_grad_info",
            )
        required = [called.inputs[i] for i in wanted]
        key = (tuple(t.id for t in have), tuple(t.id for t in required), len(called.ops))
        if key not in called.gradients:
            _check(called, have, required)
            called.gradients[key] = _Differentiation(
                called, have, required, self.known, self.made
            ).run()
        self.made[called] = called.gradients[key]
        return called.gradients[key]

    def _branch(
        self, op: Op, gradients: list[Tensor | None], wanted: tuple[int, ...]
    ) -> Sequence[Tensor | None]:
        """A branch between the gradients of both branches; what the other one reads gets zeros."""
        places = dict(op.layout)
        have = [i for i, grad in enumerate(gradients) if grad is not None]
        graphs, inputs = [], []
        for name, graph in zip(("then", "else"), op.graphs, strict=True):
            mine = [i for i in wanted if i in places[name]]
            required = [graph.inputs[places[name].index(i)] for i in mine]
            provided = [graph.outputs[i] for i in have]
            _check(graph, provided, required)
            info = _Differentiation(graph, provided, required, self.known, self.made).run()
            graphs.append(_padded(info, op, mine, wanted))
            inputs.append(
                [
                    gradients[graph.outputs.index(e.fwd_tensor)]
                    if e.connection_type is ExpectedConnectionType.FwdGrad
                    else self.forward(op.inputs[places[name][graph.inputs.index(e.fwd_tensor)]])
                    for e in info.expected_inputs
                ]
            )
        return apply("conditional", self.forward(op.inputs[places["cond"]]), *graphs, *inputs)

    # -- stitching --

    def _stitch(self) -> None:
        """Make what the gradient needs an output of the forward graph, and of all its calls."""
        known = {*self.graph.inputs, *self.graph.outputs}
        for e in self.expected:
            t = e.fwd_tensor
            if t in known:
                continue
            known.add(t)
            self.graph.mark_as_output(t)
            for op in self.graph.call_sites:
                add_output(op, t)


def _padded(info: GradGraphInfo, op: Op, mine: list[int], wanted: tuple[int, ...]) -> Graph:
    """A gradient graph of one branch, with zeros for the inputs of the other."""
    ir = info.graph.ir
    wrapper = ir.create_empty_graph(f"{info.graph.id}_branch")
    with wrapper:
        own = []
        for t in info.graph.inputs:
            own.append(wrapper.new_tensor(t.name, t.shape, t.dtype, t.meta_shape))
            wrapper.mark_input(own[-1])
        result = dict(zip(mine, apply("call", info.graph, *own), strict=True))
        for i in wanted:
            wrapper.mark_as_output(_or_zeros(result.get(i), op.inputs[i]))
    return wrapper


def add_output(op: Op, inner: Tensor) -> Tensor:
    """One more output of a call, for an output that its graph got."""
    out = op.graph.new_tensor(inner.name, inner.shape, inner.dtype, inner.meta_shape)
    out.producer = op
    op.outputs.append(out)
    op.graph.changed()
    return out


def named(t: Tensor, by: Tensor) -> Tensor:
    """Rename a tensor as the gradient by another."""
    t.graph.rename_tensor(t, PREFIX + by.name)
    return t


def _or_zeros(grad: Tensor | None, t: Tensor) -> Tensor:
    """A gradient, or zeros where nothing depends on the tensor."""
    if grad is not None:
        return grad
    return apply("init", t.shape, t.dtype, PREFIX + t.name, "zero", t.meta_shape)


_ADVICE = {
    "ReplicatedAllReduce": "use popxl_addons.ops.replicated_all_reduce_identical_inputs or"
    " …_identical_grad_inputs, which say what happens to gradients",
    "ReplicatedReduceScatter": "a reduction that is scattered has no gradient",
}
Gradient = Callable[[_Differentiation, Op, list[Tensor | None], tuple[int, ...]], Sequence]

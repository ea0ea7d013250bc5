"""Gradients of graphs: order of inputs and outputs, stitching, custom gradients, refusals."""

import numpy as np
import pytest
import torch

import popxl
from popart import popart_exception
from popxl import ops
from popxl.transforms import ExpectedConnectionType, autodiff
from tests.frontends.popxl.runs import run


def scale_and_shift(x, w, b):
    return ops.exp(x * w) + b


def built():
    ir = popxl.Ir()
    with ir.main_graph:
        inputs = [
            popxl.variable(np.full((2, 3), v, np.float32), name=n)
            for n, v in (("x", 0.5), ("w", 2.0), ("b", 1.0))
        ]
        graph = ir.create_graph(scale_and_shift, *inputs)
        info = ops.call_with_info(graph, *inputs)
    return ir, graph, info


def test_guarantees():
    """Inputs begin with the gradients provided, outputs are those required, in their order."""
    ir, graph, info = built()
    n_outputs = len(info.outputs)
    x, _, b = graph.inputs
    result = autodiff(graph, grads_required=[b, x])
    assert [e.fwd_tensor for e in result.expected_outputs] == [b, x]
    first, *others = result.expected_inputs
    assert first.connection_type is ExpectedConnectionType.FwdGrad
    assert first.fwd_tensor is graph.outputs[0]
    assert all(e.connection_type is ExpectedConnectionType.Fwd for e in others)
    assert all(e.fwd_tensor in graph.inputs or e.fwd_tensor in graph.outputs for e in others)
    assert len(result.graph.inputs) == len(result.expected_inputs)
    assert len(info.outputs) == len(graph.outputs) > n_outputs  # the call made before has grown
    with ir.main_graph:
        seed = popxl.constant(np.ones((2, 3), np.float32))
        call = ops.call_with_info(result.graph, seed, inputs_dict=result.inputs_dict(info))
    by_input = result.fwd_graph_ins_to_grad_parent_outs(call)
    assert list(by_input) == [b, x]
    assert all(t.name in g.name for t, g in by_input.items())
    by_parent = result.fwd_parent_ins_to_grad_parent_outs(info, call)
    assert [t.name for t in by_parent] == ["b", "x"]
    db, dx = run(ir, list(by_parent.values()))
    np.testing.assert_array_equal(db, np.ones((2, 3)))
    np.testing.assert_allclose(dx, np.full((2, 3), 2 * np.e), rtol=1e-6)
    assert repr(result).startswith("GradGraphInfo[")


def test_one_gradient_graph_for_all_calls():
    """A graph that is called many times is differentiated once; its gradient is called as often."""
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.float32([0.1, 0.2]))
        layer = ir.create_graph(lambda t: ops.tanh(t) * 1.5, x)

        def net(t):
            for _ in range(6):
                (t,) = ops.call(layer, t)[:1]
            return t

        graph = ir.create_graph(net, x)
        n_graphs = len(ir.graphs)
        result = autodiff(graph, return_all_grad_graphs=True)
    assert len(ir.graphs) == n_graphs + 2
    assert set(result) == {layer, graph}
    assert len([op for op in result[graph].graph.ops if op.kind == "Call"]) == 6


def test_own_gradients_and_blocks():
    """A gradient that is given replaces the one that would be made; a blocked graph needs it."""
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(3.0)
        inner = ir.create_graph(lambda t: t * t, x)
        outer = ir.create_graph(lambda t: ops.call(inner, t)[0] * 1.0, x)
        inner._pb_graph.setCanBeRecursivelyAutodiffed(False)
        with pytest.raises(popart_exception, match="called_graphs_grad_info"):
            autodiff(outer)
        inner._pb_graph.setCanBeRecursivelyAutodiffed(True)
        own = autodiff(inner)
        doubled = ir.create_empty_graph("doubled")
        with doubled:
            grad = popxl.graph_input((), popxl.float32, "g")
            for e in own.expected_inputs[1:]:
                popxl.graph_input(e.fwd_tensor.shape, e.fwd_tensor.dtype)
            popxl.graph_output(grad * 100.0)
        given = type(own)(doubled, inner, own.expected_inputs, own.expected_outputs)
        result = autodiff(outer, called_graphs_grad_info={inner: given})
        info = ops.call_with_info(outer, x)
        made = ops.call(result.graph, 1.0, inputs_dict=result.inputs_dict(info))
    assert float(run(ir, made)[0]) == 100.0


@pytest.mark.parametrize(
    "body",
    [
        lambda a, b: ops.add_(a, b),  # noqa: PLW0108
        lambda a, b: ops.gelu_(a) + b,
        lambda a, b: ops.var_updates.accumulate_(a, b, 0.1),
    ],
)
def test_writing_graphs_are_refused(body):
    """A graph that writes its tensors cannot be differentiated; joining in place is no write."""
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable([1.0])
        graph = ir.create_graph(body, x, x)
        with pytest.raises(popart_exception) as error:
            autodiff(graph)
        assert str(error.value).startswith(f"The graph {graph.id} contains a modifying op")
        autodiff(ir.create_graph(lambda a, b: ops.concat_([a, b]), x, x))


def test_what_has_no_gradient():
    """Loops that write inputs are refused, and the main graph; detached tensors give zeros."""
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable([2.0])
        step = ir.create_graph(lambda t: t * 2.0, x)

        def writes(t: popxl.TensorByRef):
            return ops.add_(t, 1.0)

        written = ir.create_graph(writes, x)
        loop = ir.create_graph(lambda t: ops.repeat(written, 2, t)[0], x)
        with pytest.raises(popart_exception, match="writes some of its inputs"):
            autodiff(loop)
        with pytest.raises(popart_exception, match="main graph"):
            autodiff(ir.main_graph)
        with pytest.raises(ValueError, match="not a tensor of graph"):
            autodiff(step, grads_required=[x])
        graph = ir.create_graph(lambda t: ops.detach(t) * t, x)
        result = autodiff(graph)
        info = ops.call_with_info(graph, x)
        made = ops.call(result.graph, np.float32([1]), inputs_dict=result.inputs_dict(info))
    assert run(ir, made)[0].tolist() == [2.0]


def test_sums_are_decomposed():
    """A gradient of many uses is one sum, or additions that follow the uses: the same number."""
    results = []
    for is_decomposed in (False, True):
        ir = popxl.Ir()
        with ir.main_graph:
            x = popxl.variable([3.0])
            graph = ir.create_graph(lambda t: t * 2.0 + ops.exp(t * 0.0) * t + t * t, x)
            result = autodiff(graph)
            assert "Sum" in [op.kind for op in result.graph.ops]
            if is_decomposed:
                popxl.transforms.decompose_sum(result.graph)
                assert "Sum" not in [op.kind for op in result.graph.ops]
            info = ops.call_with_info(graph, x)
            made = ops.call(result.graph, np.float32([1]), inputs_dict=result.inputs_dict(info))
        results.append(run(ir, made)[0].tolist())
    assert results == [[9.0], [9.0]]


@pytest.mark.parametrize("flag", [True, False])
def test_branches(flag):
    """The gradient of the branch that was taken; inputs of the other get zeros."""
    ir = popxl.Ir()
    with ir.main_graph:
        x, y = popxl.variable([2.0]), popxl.variable([3.0])
        cond = popxl.constant(flag)
        yes = ir.create_graph(lambda a, b: ops.exp(a) * b, x, y)
        no = ir.create_graph(lambda a: a * a, x)

        def net(c, x, y):
            return ops.conditional(c, yes, no, [x, y], [x])[0] * 2.0

        graph = ir.create_graph(net, cond, x, y)
        result = autodiff(graph, grads_required=graph.inputs[1:])
        info = ops.call_with_info(graph, cond, x, y)
        made = ops.call(result.graph, np.float32([1]), inputs_dict=result.inputs_dict(info))
    dx, dy = (float(g[0]) for g in run(ir, made))
    e = np.exp(2.0)
    assert (dx, dy) == pytest.approx((6 * e, 2 * e) if flag else (8.0, 0.0), rel=1e-6)


def recurrence(t, u, w, module):
    return module.tanh(t @ w) + u * 0.5, module.sin(t) * u


@pytest.mark.parametrize(("n_outer", "n_inner"), [(0, 1), (1, 0), (3, 1), (3, 4)])
def test_loops(n_outer, n_inner):
    """A loop, and a loop in a loop: values carried and values that all rounds read."""
    rng = np.random.default_rng(n_outer)
    arrays = [0.5 * rng.normal(size=s).astype(np.float32) for s in ((2, 3), (3, 3), (2, 3))]
    ir = popxl.Ir()
    with ir.main_graph:
        x, w, b = map(popxl.variable, arrays)

        def outer(t, u, w, b):
            inner = ir.create_graph(lambda t, u, w: recurrence(t, u, w, ops), t, u, w)
            t, u = ops.repeat(inner, n_inner, t, u, w)
            return t * b, u + t

        def loss(t, w, b):
            t, u = ops.repeat(ir.create_graph(outer, t, t, w, b), n_outer, t * 1.0, t + 1.0, w, b)
            return ops.sum(t * u)

        graph = ir.create_graph(loss, x, w, b)
        call = ops.call_with_info(graph, x, w, b)
        grad = autodiff(graph)
        made = ops.call(grad.graph, popxl.constant(1.0), inputs_dict=grad.inputs_dict(call))
    tx, tw, tb = (torch.tensor(array, requires_grad=True) for array in arrays)
    t, u = tx * 1.0, tx + 1.0
    for _ in range(n_outer):
        for _ in range(n_inner):
            t, u = recurrence(t, u, tw, torch)
        t, u = t * tb, u + t
    (t * u).sum().backward()
    for result, expected in zip(run(ir, made), (tx, tw, tb), strict=True):
        want = np.zeros_like(result) if expected.grad is None else expected.grad.numpy()
        np.testing.assert_allclose(result, want, 1e-4, 1e-5)

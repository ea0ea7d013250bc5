"""Modules: named variables, modules in modules, gradients that they say themselves."""

import numpy as np
import pytest

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.layers import Linear


def run(ir, *tensors):
    """Values of tensors of the main graph after one run."""
    with ir.main_graph:
        streams = [popxl.d2h_stream(t.shape, t.dtype) for t in tensors]
        for stream, t in zip(streams, tensors, strict=True):
            ops.host_store(stream, t)
    with popxl.Session(ir, "cpu") as session:
        results = session.run()
    return [results[stream] for stream in streams]


class Two(addons.Module):
    def __init__(self):
        super().__init__()
        self.first = Linear(3)
        self.layer = Linear(3, bias=False)

    def build(self, x):
        x = self.first(x)  # in place
        factories, graph = self.layer.create_graph(x)  # a graph, called twice
        for name in ("a", "b"):
            (x,) = graph.bind(self.add_variable_inputs(name, factories)).call(x)
        return x


def test_modules_in_modules_have_names():
    """Parts that are inlined and graphs that are called have their variables under their names."""
    ir = popxl.Ir()
    x = np.ones((2, 4), np.float32)
    with ir.main_graph:
        t = popxl.variable(x)
        factories, graph = Two().create_graph(t)
        assert sorted(factories.to_dict()) == ["a.weight", "b.weight", "first.bias", "first.weight"]
        args = factories.init()
        (y,) = graph.bind(args).call(t)
        values = [args.first.weight, args.first.bias, args.a.weight, args.b.weight]
    w, b, first, second, result = run(ir, *values, y)
    np.testing.assert_allclose(result, (x @ w + b) @ first @ second, rtol=1e-5)


class Cube(addons.Module):
    """Cubes, whose gradient is said to be something else."""

    def build(self, x):
        w = self.add_variable_input("w", lambda: np.array(2, np.float32))
        self.aux["x"] = x
        self.aux["w"] = w
        return x * x * x * w

    def build_grad(self, dy):
        self.var_grad["w"] = ops.sum(dy * self.aux["x"])
        return dy * self.aux["w"] * 100


class Around(addons.Module):
    def __init__(self):
        super().__init__()
        self.inner = Cube()

    def build(self, x):
        factories, graph = self.inner.create_graph(x)
        (y,) = graph.bind(self.add_variable_inputs("inner", factories)).call(x)
        return y * 10


def test_gradients_that_modules_say_themselves():
    """`build_grad` is the gradient of the module's graph, also inside of others."""
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.array([1, 2], np.float32))
        factories, graph = Around().create_graph(x)
        gradient = addons.autodiff(graph)
        args = factories.init()
        call = graph.bind(args).call_with_info(x)
        seed = popxl.variable(np.ones(2, np.float32))
        given = gradient.grad_graph_info.inputs_dict(call)
        dx, dw = gradient.call(seed, args=given)
        y = call.outputs[0]
    y, dx, dw = run(ir, y, dx, dw)
    np.testing.assert_allclose(y, [20, 160])
    np.testing.assert_allclose(dx, [2000, 2000])
    np.testing.assert_allclose(dw, 30)


def test_graphs_are_made_once_if_asked():
    """With a cache, equal types give the same graph, and other types another."""
    ir = popxl.Ir()
    with ir.main_graph:
        module = Linear(2)
        module._graph_cache = addons.GraphCache()
        specs = [popxl.TensorSpec((n, 3), popxl.float32) for n in (1, 1, 2)]
        first, second, third = (module.create_graph(spec)[1].graph for spec in specs)
        assert first is second
        assert first is not third


def test_tensors_are_routed_into_graphs():
    """A tensor of the main graph reaches a graph through all calls on the way."""
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.array(3, np.float32), name="x")
        inner = ir.create_empty_graph("inner")
        outer = ir.create_empty_graph("outer")
        with outer:
            ops.call(inner)
        with pytest.raises(ValueError, match="not in a known parent graph"):
            addons.route_tensor_into_graph(x, outer)
        ops.call(outer)
        with inner:
            t = addons.route_tensor_into_graph(x)
            assert addons.route_tensor_into_graph(x) is t
            stream = popxl.d2h_stream((), popxl.float32)
            ops.host_store(stream, t * 2)
    with popxl.Session(ir, "cpu") as session:
        assert session.run()[stream] == 6

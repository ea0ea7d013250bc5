"""Gradients that modules give themselves: aux, var_grad, calls through graphs, and their errors."""

from functools import partial

import numpy as np
import pytest

import popxl
import popxl_addons as addons
from popxl import ops
from tests.frontends.popxl_addons.graphs.test_module import run

X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
DY = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)


class Affine(addons.Module):
    """x @ w + b, differentiated by PopXL."""

    def __init__(self, n=3, **options):
        super().__init__(**options)
        self.n = n

    def build(self, x):
        self.w = self.add_variable_input("w", partial(np.ones, (x.shape[-1], self.n)), x.dtype)
        self.b = self.add_variable_input("b", partial(np.zeros, self.n), x.dtype)
        return x @ self.w + self.b


class ByHand(Affine):
    """x @ w + b, with its gradient."""

    def build(self, x):
        y = super().build(x)
        self.aux.update(x=x, w=self.w, factor=1.0)
        return y

    def build_grad(self, dy):
        self.var_grad["b"] = ops.sum(dy, 0)
        self.var_grad["w"] = self.aux["x"].T @ dy * self.aux["factor"]
        return dy @ self.aux["w"].T


class Calls(addons.Module):
    def build(self, x):
        (y,) = self.call_module(ByHand())(1 * x)
        return y


class Nested(addons.Module):
    def __init__(self):
        super().__init__()
        self.inner = Calls()

    def build(self, x):
        return self.inner(x * 1)


class NestedCalls(addons.Module):
    def build(self, x):
        return self.call_module(Calls(), "named")(x * 1)


def gradients(module, **options):
    """Outputs of a module and its gradients by x, w and b."""
    ir = popxl.Ir()
    with ir.main_graph:
        x, dy = popxl.variable(X), popxl.variable(DY)
        factories, graph = module.create_graph(x)
        gradient = graph.autodiff(**options)
        info = gradient.grad_graph_info
        call = graph.bind(factories.init()).call_with_info(x)
        results = gradient.call(dy, args=info.inputs_dict(call))
        assert [t.spec for t in results] == [e.fwd_tensor.spec for e in info.expected_outputs]
        assert len(gradient.graph.inputs) == len(info.expected_inputs)
        y = call.outputs[0]
    return run(ir, y, *results)


@pytest.mark.parametrize("module", [ByHand, Calls, Nested, NestedCalls])
def test_build_grad_is_the_gradient_wherever_the_module_is_called(module):
    """A module with `build_grad`, one that calls it, and ones around that give equal gradients."""
    expected = [X @ np.ones((3, 3)), DY @ np.ones((3, 3)), X.T @ DY, DY.sum(0)]
    for result, value in zip(gradients(module()), expected, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["build_grad", "autodiff"])
def test_the_method_can_be_chosen(method):
    """PopXL's autodiff of a module with `build_grad` is there on request, and agrees."""
    for a, b in zip(gradients(ByHand(), method=method), gradients(Affine()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_gradients_of_called_graphs_are_needed():
    """Without `called_graphs_grad_info` a graph with its own gradient is not taken apart."""
    with popxl.Ir().main_graph:
        _, graph = Calls().create_graph(popxl.variable(X))
        infos, graph.called_graphs_grad_info = graph.called_graphs_grad_info, {}
        assert infos
        with pytest.raises(Exception, match="marked as unsafe to autodiff"):
            graph.autodiff()
        graph.autodiff(called_graphs_grad_info=infos)
        with pytest.raises(Exception, match="Autodiff has already been applied"):
            graph.autodiff()
        plain = addons.GraphWithNamedArgs(graph.graph, graph.args)
        with pytest.raises(Exception, match="`from_module` is specified"):
            plain.autodiff(method="build_grad")


def test_calling_a_module_with_build_grad_directly():
    """It is an error, a warning or nothing, as the module says; a cache is an error."""

    class Inlines(addons.Module):
        def __init__(self, how):
            super().__init__()
            self.part = ByHand(grad_inlining_error=how)

        def build(self, x):
            return self.part(x)

    with popxl.Ir().main_graph:
        x = popxl.variable(X)
        with pytest.raises(Exception, match="`build_grad` has been implemented"):
            Inlines("error").create_graph(x)
        with pytest.warns(UserWarning, match="`build_grad` has been implemented"):
            Inlines("warning").create_graph(x)
        Inlines("none").create_graph(x)
    with pytest.raises(ValueError, match="grad_inlining_error should be one of"):
        ByHand(grad_inlining_error="")
    with pytest.raises(ValueError, match="cannot use graph caching"):
        ByHand(cache=True)


def variant(build_grad):
    """ByHand with another gradient."""
    return type("Variant", (ByHand,), {"build_grad": build_grad})()


def too_many(self, dy):
    return dy, dy


def too_few(self, dy):
    self.var_grad["b"], self.var_grad["w"] = ops.sum(dy, 0), self.aux["x"].T @ dy


def no_variable(self, dy):
    return dy


def wrong_shape(self, dy):
    too_few(self, dy)
    return ops.sum(dy, 0)


def any_number(self, *dy):
    return dy


def unknown_variable(self, dy):
    self.var_grad["z"] = dy


def wrong_variable_shape(self, dy):
    self.var_grad["w"] = ops.sum(dy, 0)


def no_tensor(self, dy):
    self.var_grad["w"] = 1


@pytest.mark.parametrize(
    ("build_grad", "text"),
    [
        (too_few, "Not all forward graph inputs have been specified"),
        (no_variable, "Not all variable gradients have been specified"),
        (wrong_shape, "Shape or meta-shape of output Tensor at position 0"),
        (any_number, "fixed number of positional parameters"),
        (unknown_variable, "Not a variable"),
        (wrong_variable_shape, "Shape or meta-shape of Tensor does not match variable"),
        (no_tensor, "Not a tensor"),
    ],
)
def test_what_build_grad_must_give(build_grad, text):
    """Missing gradients, wrong shapes and unknown names are errors that say so."""
    with popxl.Ir().main_graph:
        _, graph = variant(build_grad).create_graph(popxl.variable(X))
        with pytest.raises(Exception, match=text):
            graph.autodiff()


def test_gradients_are_chosen_by_tensors_of_the_graph():
    """`grads_provided` and `grads_required` are outputs and inputs of the forward graph."""
    with popxl.Ir().main_graph:
        x = popxl.variable(X)
        module = ByHand()
        _, graph = module.create_graph(x)
        with pytest.raises(ValueError, match="`grads_provided` is not a output of `fwd_graph`"):
            graph.autodiff(grads_provided=[x])
        with pytest.raises(ValueError, match="do not match the signature"):
            graph.autodiff(grads_provided=[])
        with pytest.raises(ValueError, match="`grads_required` is not a input of `fwd_graph`"):
            graph.autodiff(grads_required=[x])
        with pytest.raises(Exception, match="Too many outputs in the grad graph"):
            graph.autodiff(grads_required=[graph.args.b])
        gradient = graph.autodiff(grads_required=[graph.args.b, graph.graph.inputs[0]])
        assert len(gradient.graph.outputs) == 2
        for name in ("aux", "var_grad"):
            with pytest.raises(Exception, match="within the `build_graph` method"):
                _ = getattr(module, name)["w"]

"""Graphs made once, functions outlined, and tensors routed through calls and loops."""

import numpy as np
import pytest

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.route_tensor import called_graph_paths
from tests.frontends.popxl_addons.graphs.test_module import run


class Sum(addons.Module):
    def __init__(self, config):
        self.config = config

    def build(self, x, y):
        return x + y

    def __hash__(self):
        return hash(self.config)


def test_what_counts_for_a_cached_graph():
    """Functions by their hash, tensors by shape and type, and the IPU."""
    cache = addons.GraphCache()
    with popxl.Ir().main_graph, popxl.ipu(0):
        x, y = popxl.variable(1), popxl.variable(2)
        first = cache.create_graph(Sum(0), x, y)
        assert cache.create_graph(Sum(0), y, x) is first
        assert cache.create_graph(Sum(1), x, y) is not first
        assert cache.create_graph(lambda x, y: x + y, x, y) is not first
        real = popxl.variable(1, popxl.float32)
        assert cache.create_graph(Sum(0), real, real) is not first
        with popxl.ipu(1):
            assert cache.create_graph(Sum(0), x, y) is not first


def test_functions_are_outlined():
    """A decorated function is one graph for equal types, whatever is not a tensor is part of it."""
    ir = popxl.Ir()

    @addons.function
    def scaled(x, factor, ys):
        return x * factor + ys[0] + ys[1]

    with ir.main_graph:
        x = popxl.variable(np.array(3, np.float32))
        (a,) = scaled(x, 2.0, [x, x])
        (b,) = scaled(a, 2.0, [a, x])
        (c,) = scaled(b, 3.0, [b, x])
    assert len(ir._pb_ir.getAllGraphs()) == 3
    assert [float(v) for v in run(ir, a, b, c)] == [12, 39, 159]


def test_routes_through_many_paths_and_loops():
    """One input in each graph on the way, however many calls there are; loops pass it on."""
    ir = popxl.Ir()
    main = ir.main_graph
    one, two, three, body = (ir.create_empty_graph(name) for name in ("one", "two", "three", "b"))
    with main:
        a = popxl.variable(np.array(1, np.float32))
        total = popxl.variable(np.array(0, np.float32))
        ops.call(one)
        ops.call(one)
        ops.repeat(body, 5)
    with one:
        ops.call(two)
        ops.call(three)
    with three:
        ops.call(two)
    assert addons.is_subgraph(main, two)
    assert not addons.is_subgraph(three, one)
    assert len(called_graph_paths(main, two)) == 2
    with two:
        inner = addons.route_tensor_into_graph(a)
        assert addons.route_tensor_into_graph(a) is inner
    with body:
        own = addons.route_tensor_into_graph(total, modified=True)
        ops.var_updates.accumulate_(own, addons.route_tensor_into_graph(a))
    assert [len(g.inputs) for g in (one, two, three, body)] == [1, 1, 1, 2]
    (value,) = run(ir, total)
    assert value == 5


def test_graphs_that_are_not_called():
    """A tensor cannot reach a graph that nothing calls."""
    ir = popxl.Ir()
    with ir.main_graph:
        a = popxl.variable(1)
    with pytest.raises(ValueError, match="is not in the graph"):
        addons.route_tensor_into_graph(a, ir.create_empty_graph("alone"))

"""Graphs compiled for tiles: what is computed again is not kept, gradients are added early."""

import numpy as np

import popxl
import popxl_addons as addons
from popxl import ops
from tremula.frontends.popxl_addons.tile_cost import TileOptions, cost_of_graph

OPTIONS = TileOptions(n_tiles=8)


def wide(x: popxl.Tensor, w: popxl.Tensor) -> popxl.Tensor:
    """Rows to wide rows and back."""
    return ops.tanh(x @ w) @ ops.transpose(w)


def gradient_of_calls(n: int) -> popxl.Graph:
    """The gradient of a graph that calls another so often; both forward passes are recomputed."""
    ir = popxl.Ir()
    with ir.main_graph:
        x, w = (popxl.variable(np.ones(shape, np.float32)) for shape in ((32, 8), (8, 512)))

        def several(x, w):
            inner = ir.create_graph(wide, x, w)
            addons.recomputed(addons.GraphWithNamedArgs(inner))
            return ops.concat([ops.call(inner, x * float(i + 1), w)[0] for i in range(n)])

        named = addons.GraphWithNamedArgs(ir.create_graph(several, x, w))
        return addons.recompute_graph(addons.autodiff(named)).graph


def test_what_is_recomputed_is_not_kept():
    """With more calls, wide rows of a single one are in memory at a time."""
    few, many = (cost_of_graph(gradient_of_calls(n), OPTIONS) for n in (2, 6))
    variables = [c.report.bytes_by_category()["Variables"].max() for c in (few, many)]
    wide_rows = 32 * 512 * 4 // 8  # of one call, on each tile
    assert variables[1] - variables[0] < 4 * wide_rows


def test_gradients_are_added_when_they_are_there():
    """A running mean follows what makes its gradient, before the next gradient is made."""
    ir = popxl.Ir()
    with ir.main_graph:
        shapes = (4, 8), (8, 8), (8, 8)
        x, a, b = (popxl.variable(np.ones(shape, np.float32)) for shape in shapes)
        graph = ir.create_graph(lambda x, a, b: ops.tanh(x @ a) @ b, x, a, b)
        named = addons.GraphWithNamedArgs(graph)
        _, gradient = addons.autodiff_with_accumulation(named, graph.inputs[1:])
    kinds = [op.kind for op in gradient.graph.ops]
    first = next(i for i, kind in enumerate(kinds) if kind.startswith("Accumulate"))
    assert "MatMulGrad" in kinds[first:]
    assert kinds[-1].startswith("Accumulate")  # the counter, behind all that read it

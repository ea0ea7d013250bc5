"""Convolutions on tiles against ATen: ranks, strides, paddings, groups, transposed, gradients."""

import pytest
import torch
import torch.nn.functional as F

from tests.ir.like_aten import assert_like_aten
from tests.sampling import in_turn
from tremula.base.types import FLOAT
from tremula.ir.lowering.layouts import preferred_layout
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.lowering.tiles import LoweringOptions, Tiles
from tremula.ir.run.tile_run import capture_function
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.target import IPUModel
from tremula.poplibs import poplin
from tremula.poplibs.poplin.product import planner
from tremula.poplibs.poputil.layout import clone_in_order, simplified

# Input, weight, and the options of the convolution; weights of transposed ones are [in, out].
CASES = (
    ((2, 3, 9, 8), (4, 3, 3, 3), {}),
    ((2, 3, 9, 8), (4, 3, 3, 3), {"stride": 2, "padding": 1}),
    ((2, 3, 9, 8), (4, 3, 3, 2), {"stride": (3, 1), "padding": (2, 1), "dilation": (2, 3)}),
    ((2, 4, 6, 6), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    ((1, 4, 5, 5), (4, 1, 3, 3), {"groups": 4}),
    ((2, 8, 5, 4), (6, 8, 1, 1), {"stride": 2}),
    ((2, 3, 10), (5, 3, 3), {"stride": 3, "padding": 1}),
    ((1, 2, 4, 5, 4), (3, 2, 3, 2, 3), {"padding": 1}),
    ((3, 7), (5, 3, 4), {"padding": 2}),
)
TRANSPOSED = (
    ((2, 3, 5, 4), (3, 4, 3, 3), {}),
    ((2, 3, 5, 4), (3, 4, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    ((2, 3, 5, 4), (3, 4, 3, 2), {"stride": (1, 3), "dilation": (3, 1), "output_padding": (2, 1)}),
    ((2, 4, 5), (4, 3, 4), {"stride": 2, "groups": 2}),
    ((1, 2, 3, 3, 3), (2, 3, 2, 2, 2), {"stride": 2}),
)


def convolve(x, weight, bias, transposed, options):
    rank = weight.dim() - 2
    name = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
    return getattr(F, name)(x, weight, bias, **options)


def tensors(cases, transposed, dtype):
    random = torch.Generator().manual_seed(5)
    result = []
    for x, weight, options in cases:
        n_out = weight[1] * options.get("groups", 1) if transposed else weight[0]
        for shape in (x, weight, (n_out,)):
            result.append(torch.randn(shape, generator=random).to(dtype))
    return result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transposed", "dtype"), in_turn([False, True], [torch.float32, torch.float16])
)
def test_values_and_gradients(transposed, dtype):
    """Every form, and the gradients of its input, weight and bias, are ATen's."""
    cases = TRANSPOSED if transposed else CASES

    def function(*flat):
        results = []
        for number, (_, _, options) in enumerate(cases):
            leaves = [t.detach().requires_grad_() for t in flat[3 * number : 3 * number + 3]]
            y = convolve(*leaves, transposed, options)
            gradients = torch.autograd.grad(y, leaves, y.detach() * 0.1)
            results += [y, *gradients]
        return results

    inputs = tensors(cases, transposed, dtype)
    tolerance = {"atol": 5e-2} if dtype is torch.float16 else {"atol": 2e-5}
    assert_like_aten(function, *inputs, **tolerance)


def test_layouts_masks_and_no_bias():
    """Turned inputs, gradients of some operands only, an empty batch."""

    def function(x, weight):
        y = F.conv2d(x.transpose(2, 3)[:, :, ::2], weight.flip(3))
        args = (y, x.transpose(2, 3)[:, :, ::2], weight.flip(3), None, [1, 1], [0, 0], [1, 1])
        backward = torch.ops.aten.convolution_backward
        only_x = backward(*args, False, [0, 0], 1, [True, False, False])
        only_weight = backward(*args, False, [0, 0], 1, [False, True, False])
        empty = F.conv2d(x[:0], weight).sum()
        return [y, only_x[0], only_weight[1], empty]

    random = torch.Generator().manual_seed(6)
    x, weight = (torch.randn(s, generator=random) for s in ((2, 3, 8, 10), (4, 3, 3, 3)))
    assert_like_aten(function, x, weight, atol=2e-5)


def graph_and_tiles():
    graph = Graph(IPUModel("bow", tiles_per_ipu=8).create_device())
    return graph, lambda node: Tiles(graph, Sequence(), node, LoweringOptions())


def test_operands_lie_as_the_convolution_wants_them():
    """Input and weights of the model are created by the convolution that reads them first."""
    x, weight = torch.randn(2, 4, 8, 8), torch.randn(6, 4, 3, 3)
    step = capture_function(lambda x, w: F.conv2d(x, w, None, 1, 1), [x, weight])
    graph, tiles = graph_and_tiles()
    got = [preferred_layout(node, tiles) for node in step.placeholders()]
    params = poplin.ConvParams(
        type=FLOAT, n_batch=2, field_shape=(8, 8), kernel_shape=(3, 3), n_in_chans=4, n_out_chans=6,
        padding_lower=(1, 1), padding_upper=(1, 1),
    )  # fmt: skip
    wanted = [poplin.create_input(graph, params), poplin.create_weights(graph, params)[0]]
    for a, b in zip(got, wanted, strict=True):
        of_a, of_b = graph.get_tile_mapping(a), graph.get_tile_mapping(b)
        assert of_a.tile.tolist() == of_b.tile.tolist()
        assert of_a.begin.tolist() == of_b.begin.tolist()


def test_equal_convolutions_are_planned_once():
    """Ten layers of one shape ask the planner once, and are replayed."""

    def function(x, *weights):
        for weight in weights:
            x = F.conv2d(x, weight, None, 1, 1)
        return x

    step = capture_function(function, [torch.randn(2, 8, 6, 6), *torch.randn(10, 8, 8, 3, 3)])
    planner._planned.cache_clear()
    target = IPUModel("bow", tiles_per_ipu=8).create_device().target
    build_tile_program(step, target, Schedule())
    assert planner._planned.cache_info().misses == 1


def test_results_of_uneven_plans_are_mapped_by_pieces():
    """What follows a convolution sees its channels in one piece."""
    graph = Graph(IPUModel("bow", tiles_per_ipu=8).create_device())
    params = poplin.ConvParams(
        type=FLOAT, n_batch=2, field_shape=(13, 11), kernel_shape=(1, 1), n_in_chans=16,
        n_out_chans=32,
    )  # fmt: skip
    x, weights = poplin.create_input(graph, params), poplin.create_weights(graph, params)
    y = poplin.convolution(graph, x, weights, params, Sequence())
    first, _ = simplified(y, [])
    assert len(first.runs().start) <= y.n_elems / 16
    copy = clone_in_order(graph, y)
    assert graph.get_tile_mapping(copy).tile.tolist() == graph.get_tile_mapping(y).tile.tolist()

"""Layer, group, batch and instance norm on tiles against ATen: results, statistics, gradients."""

import pytest
import torch
import torch.nn.functional as F

import tremula
from tests.ir.like_aten import assert_like_aten
from tests.sampling import in_turn
from tremula.base.types import HALF
from tremula.ir.lowering.nn.norms import Norm
from tremula.ir.lowering.options import LoweringOptions
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.ops.strided_norm import strided_group_norm
from tremula.ir.run.tile_run import capture_function, run_on_tiles
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.target import IPUModel


def operands(dtype):
    generator = torch.Generator().manual_seed(1)
    shapes = ((4, 6, 5, 3), (6,), (6,), (4, 6, 5, 3), (5, 3), (5, 3))
    x, *rest = (torch.randn(*s, generator=generator).to(dtype) for s in shapes)
    return (x + 2, *rest, torch.zeros(6, dtype=dtype), torch.ones(6, dtype=dtype))


def with_gradients(y, gradient, *of):
    return [y, *torch.autograd.grad(y, of, gradient)]


def layer_and_group(x, gamma, beta, gradient, scale, shift, *_running):
    x, gamma, beta, scale, shift = (
        t.detach().requires_grad_() for t in (x, gamma, beta, scale, shift)
    )
    return [
        *with_gradients(F.layer_norm(x, (5, 3), scale, shift), gradient, x, scale, shift),
        *with_gradients(F.layer_norm(x, (6, 5, 3), eps=1e-3), gradient, x),
        *with_gradients(F.layer_norm(x, (5, 3), scale), gradient, x, scale),
        *with_gradients(F.group_norm(x, 3, gamma, beta), gradient, x, gamma, beta),
        *with_gradients(F.group_norm(x, 1), gradient, x),
        *with_gradients(F.group_norm(x, 6, gamma), gradient, x, gamma),
        *with_gradients(F.instance_norm(x, weight=gamma, bias=beta), gradient, x, gamma, beta),
    ]


def of_strided_channels(x, gamma, beta, gradient, *_rest):
    x, gamma, beta = (t.detach().requires_grad_() for t in (x, gamma, beta))
    return [
        *with_gradients(strided_group_norm(x, 3, gamma, beta, 1e-3), gradient, x, gamma, beta),
        *with_gradients(strided_group_norm(x, 2, None, beta, 1e-5), gradient, x, beta),
        *with_gradients(strided_group_norm(x, 2, None, None, 1e-5), gradient, x),
    ]


def batch(x, gamma, beta, gradient, _scale, _shift, mean, variance):
    x, gamma, beta = (t.detach().requires_grad_() for t in (x, gamma, beta))
    mean, variance = mean.clone(), variance.clone()
    norm = F.batch_norm
    results = [
        *with_gradients(norm(x, mean, variance, gamma, beta, True, 0.2), gradient, x, gamma, beta)
    ]
    results += [mean.clone(), variance.clone()]
    results += with_gradients(norm(x, mean, variance, gamma, beta, False), gradient, x, gamma, beta)
    results += with_gradients(norm(x, mean, variance, None, None, True, 0.5), gradient, x)
    results += [mean, variance]
    results += with_gradients(norm(x, None, None, gamma, beta, True), gradient, x, gamma, beta)
    flat = x[:, :, 0, 0]
    return results + with_gradients(norm(flat, None, None, training=True), gradient[:, :, 0, 0], x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "dtype"),
    in_turn([layer_and_group, of_strided_channels, batch], [torch.float32, torch.float16]),
)
def test_norms(function, dtype):
    """Results, gradients and running statistics (unbiased variance) of each norm."""
    loose = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.float16 else {"rtol": 1e-4, "atol": 2e-5}
    assert_like_aten(function, *operands(dtype), **loose)


def test_groups_of_strided_channels():
    """Group g has channels g, g + n_groups, …: as ATen's groups of channels in another order."""
    x, gamma, beta, gradient = operands(torch.float32)[:4]
    order = [0, 3, 1, 4, 2, 5]  # three groups of two

    def moved(x, gamma, beta):
        y = F.group_norm(x[:, order], 3, gamma[order], beta[order], 1e-3)
        return y[:, torch.tensor(order).argsort()]

    expected, got = [], []
    for results, norm in (
        (expected, moved),
        (got, lambda x, gamma, beta: strided_group_norm(x, 3, gamma, beta, 1e-3)),
    ):
        leaves = [t.detach().requires_grad_() for t in (x, gamma, beta)]
        results += with_gradients(norm(*leaves), gradient, *leaves)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_statistics_of_strided_channels_repeat_as_a_vector():
    """No tile copies them value by value: a third of a block's channels is none of a group's."""
    x, w = torch.zeros(1, 3, 41, 41).half(), torch.zeros(48, 3, 3, 3).half()
    gamma, beta = torch.ones(48).half(), torch.zeros(48).half()

    def most_descriptors(norm):
        report = tremula.cost_of(lambda x, w, *p: norm(F.conv2d(x, w), *p), x, w, gamma, beta,
                                 n_tiles=16)  # fmt: skip
        return int(report.memory.category("Copy Descriptors").max())

    neighbours = most_descriptors(lambda y, g, b: F.group_norm(y, 4, g, b))
    strided = most_descriptors(lambda y, g, b: strided_group_norm(y, 4, g, b, 1e-5))
    assert strided < 100 < neighbours / 100


def test_large_means_keep_their_digits():
    """A mean a thousand times the deviation leaves the variance right: it is taken off first."""
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(2)) + 1000
    assert_like_aten(lambda x: [F.layer_norm(x, (64,))], x, rtol=1e-3, atol=1e-3)


def test_model_in_evaluation():
    """A module's batch norm in evaluation uses its running values and leaves them."""
    net = torch.nn.BatchNorm1d(3).eval()
    net.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
    x = torch.randn(5, 3, 2, generator=torch.Generator().manual_seed(3))
    expected = net(x)

    def function(x, mean, variance):
        return [F.batch_norm(x, mean, variance)]

    (got,) = run_on_tiles(function, x, net.running_mean, net.running_var)
    torch.testing.assert_close(got, expected.detach())


def test_statistics_of_popnn_lie_in_whole_vectors():
    """A tile fetches the means of its channels in few pieces: four halves of them are together."""
    graph = Graph(IPUModel("bow", tiles_per_ipu=64).create_device())
    x = graph.add_variable(HALF, [32, 30, 64], "x", mapping="linear").dim_shuffle([0, 2, 1])
    step = capture_function(
        lambda x: F.batch_norm(x, None, None, None, None, True), [torch.ones(2, 4, 3)]
    )
    node = next(n for n in step.graph.nodes if "batch_norm" in n.name)
    norm = Norm(Tiles(graph, Sequence(), node, LoweringOptions()), x, (1,), (1,), is_popnn=True)
    for statistic in norm.plain_statistics():
        mapping = graph.get_tile_mapping(statistic)
        assert ((mapping.end - mapping.begin) % 4 == 0).all()
        assert len(mapping.tile) > 1

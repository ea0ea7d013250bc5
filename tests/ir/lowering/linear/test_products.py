"""Matrix products on tiles against ATen: every form, gradients, layouts, serial parts, options."""

import pytest
import torch
import torch.nn.functional as F

from tests.ir.like_aten import assert_like_aten
from tremula.base.types import FLOAT
from tremula.compiler.executable.records import view_of
from tremula.ir.lowering.layouts import preferred_layout
from tremula.ir.lowering.linear import products
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.lowering.tiles import LoweringOptions, Tiles
from tremula.ir.ops import composite as composite_ops  # noqa: F401 - defines the serialised product
from tremula.ir.run.tile_run import capture_function
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.target import IPUModel
from tremula.poplibs import poplin
from tremula.runtime.engine import Engine

MODES = ("input_channels", "reducing_dim", "output_channels", "none")


@pytest.fixture
def operands():
    """Matrices, a vector, batches of matrices, and a bias."""
    random = torch.Generator().manual_seed(3)
    shapes = ((5, 7), (7, 3), (3,), (7,), (4, 5, 7), (4, 7, 6))
    return tuple(torch.randn(shape, generator=random) for shape in shapes)


def all_products(a, b, bias, v, left, right):
    return [
        torch.mm(a, b), torch.mm(b.t(), a.t()), torch.mm(a[:, ::2], b[::2]), a @ v, v @ b,
        torch.addmm(bias, a, b), torch.addmm(bias, a, b, beta=0.5, alpha=2.0),
        torch.addmm(bias, a, b, beta=0), torch.bmm(left, right), torch.dot(v, v),
        torch.bmm(left.transpose(0, 1), right[:1].expand(5, 7, 6)), torch.outer(v, bias),
        torch.baddbmm(left[:, :1, :6], left, right), torch.addmv(v[:5], a, v), left @ b,
        torch.addbmm(left[0, :, :6], left, right), torch.addr(torch.mm(a, b), v[:5], bias),
        F.linear(left, b.t(), bias), torch.einsum("bij,bjk->bki", left, right),
        torch.mm(a[:0], b).sum(), torch.mm(a[:, :0], b[:0]), torch.bmm(left[:0], right[:0]).sum(),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_products(operands, dtype):
    """Every kind of product of turned, sliced, repeated and empty operands is ATen's."""
    assert_like_aten(all_products, *(x.to(dtype) for x in operands))


def test_products_of_integers_are_exact():
    """Whole numbers above what a float holds are multiplied exactly."""
    a = torch.tensor([[2**15 + 1, 3], [-5, 7]], dtype=torch.int32)
    assert_like_aten(lambda x: [x @ x, x[0] @ x, torch.bmm(x[None], x[None])], a)


@pytest.mark.slow
def test_gradients(operands):
    """Products of the backward pass read the forward pass's weights turned."""

    def function(a, b, bias, v, left, right):
        leaves = [x.detach().requires_grad_() for x in (a, b, bias, left, right)]
        a, b, bias, left, right = leaves
        hidden = F.relu(F.linear(left, b.t(), bias))
        value = (hidden @ a[:3, :4]).sum() + torch.bmm(left, right).square().sum()
        return torch.autograd.grad(value + (a @ b).exp().mean(), leaves)

    assert_like_aten(function, *operands)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_serialised_products(operands, dtype):
    """A product in serial parts has the value and gradients of one in one piece, in every mode."""

    def function(a, b, left):
        results = []
        for mode in MODES:
            x, w = (t.detach().requires_grad_() for t in (left, b))
            y = torch.ops.tremula.serialized_mm(x, w, mode, 3, True)
            results += [y, *torch.autograd.grad(y.square().sum(), (x, w))]
        return [*results, torch.ops.tremula.serialized_mm(a, b, "reducing_dim", 2, False)]

    assert_like_aten(function, *(operands[i].to(dtype) for i in (0, 1, 4)))


def built(function, inputs, options=None):
    step = capture_function(function, inputs)
    target = IPUModel("bow", tiles_per_ipu=8).create_device().target
    return build_tile_program(step, target, Schedule(), options or LoweringOptions())


def test_serial_parts_are_parts():
    """With a factor of 4 there are four products, one after the other."""
    x, w = torch.randn(8, 16), torch.randn(16, 32)

    def count(factor):
        def function(x, w):
            return torch.ops.tremula.serialized_mm(x, w, "output_channels", factor, False)

        names = built(function, [x, w]).graph.state.compute_sets
        return sum("onvolve" in s.name or "matMul" in s.name for s in names) or len(names)

    assert count(4) == 4 * count(1)


def test_weights_lie_as_their_product_wants_them():
    """A weight read through a view is created for its product: as that one's own operand."""
    step = capture_function(lambda x, w: x @ w.t(), [torch.randn(32, 64), torch.randn(48, 64)])
    graph = Graph(IPUModel("bow", tiles_per_ipu=8).create_device())
    tiles = lambda node: Tiles(graph, Sequence(), node, LoweringOptions())  # noqa: E731
    x, w = (preferred_layout(node, tiles) for node in step.placeholders())
    shapes = FLOAT, (32, 64), (64, 48)
    left = poplin.create_mat_mul_input_lhs(graph, *shapes)
    right = poplin.create_mat_mul_input_rhs(graph, *shapes)
    for got, wanted in ((x, left), (w.transpose(), right)):
        a, b = (graph.get_tile_mapping(t) for t in (got, wanted))
        assert (a.tile.tolist(), a.begin.tolist()) == (b.tile.tolist(), b.begin.tolist())


def test_options_reach_the_planner(monkeypatch):
    """Partials' type and available memory are those of the options, by chip."""
    seen = []

    def spy(graph, a, b, sequence, name, **options):
        seen.append(options)
        return graph.add_variable(a.type, [a.shape[0], b.shape[1]], name, mapping="linear")

    monkeypatch.setattr(products.poplin, "mat_mul", spy)
    options = LoweringOptions(partials_type="half", available_memory={0: 0.25})
    built(torch.mm, [torch.randn(4, 4).half(), torch.randn(4, 4).half()], options)
    assert seen == [{"partials_type": "half", "available_memory_proportion": 0.25}]


def test_turned_weights_are_written_and_read_in_few_pieces():
    """The host's view of a weight created for its product has runs by rows, not by elements."""
    graph = Graph(IPUModel("bow", tiles_per_ipu=8).create_device())
    weight = poplin.create_mat_mul_input_rhs(graph, FLOAT, (37, 61), (61, 43)).transpose()
    graph.create_host_write("weight", weight)
    graph.create_host_read("weight", weight)
    engine = Engine(graph, [Sequence()]).load()
    values = torch.randn(43, 61).numpy()
    engine.write_tensor("weight", values)
    assert (engine.read_tensor("weight") == values).all()
    assert len(view_of(weight).runs.start) < values.size / 4


def test_a_table_that_is_also_the_output_layer_is_multiplied_in_parts(monkeypatch):
    """It lies as lookups want it; in parts, fewer bytes of it are on the tiles twice at a time."""

    def function(x, rows, table):
        return (x + F.embedding(rows, table)) @ table.t()

    random = torch.Generator().manual_seed(1)
    table = torch.randn(768, 256, generator=random)
    inputs = [torch.randn(4, 256, generator=random), torch.tensor([0, 767, 5, 5]), table]
    at_once = peak_bytes(function, inputs)
    monkeypatch.setattr(products, "_REARRANGED_SHARE", 1 / 32)
    assert_like_aten(function, *inputs, atol=1e-4)
    assert peak_bytes(function, inputs) < at_once - table.nbytes / 8 / 2


def peak_bytes(function, inputs):
    """Of the fullest tile of eight."""
    device = IPUModel("bow", tiles_per_ipu=8).create_device()
    built = build_tile_program(capture_function(function, inputs), device.target, Schedule())
    return Engine(built.graph, [built.program]).load(device).report().tiles.n_bytes.max()


NAN = float("nan")
FACTORS = [(0, 1), (1, 0), (0, 0), (0, 2), (2, 0)]  # alpha, beta


@pytest.mark.parametrize("bad", [NAN, float("inf")], ids=str)
def test_what_is_multiplied_by_zero_is_not_read(bad):
    """NaN and infinity times the factor 0 do not matter in products with a bias, as in PyTorch."""
    good = torch.arange(16.0).reshape(4, 4)

    def function(good, bad):
        result = []
        for alpha, beta in FACTORS:
            x, bias = bad if alpha == 0 else good, bad if beta == 0 else good
            how = {"alpha": alpha, "beta": beta}
            result += [
                torch.addmm(bias, x, good, **how), torch.addmm(bias[0], x, good, **how),
                torch.addmv(bias[0], x, good[0], **how),
                torch.addbmm(bias, x[None], good[None], **how),
            ]  # fmt: skip
            if alpha:  # PyTorch's kernel for small matrices reads what alpha makes zero
                result.append(torch.baddbmm(bias[None], x[None], good[None], **how))
                result.append(torch.addr(bias, x[0], good[0], **how))
        return result

    assert_like_aten(function, good, torch.full((4, 4), bad))

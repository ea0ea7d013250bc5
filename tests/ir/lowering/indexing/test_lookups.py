"""Lookups and updates on tiles against ATen: embedding, index, gather, index_put, scatters."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.ir.like_aten import assert_close, assert_like_aten
from tremula.base.errors import ApplicationRuntimeError
from tremula.base.types import FLOAT
from tremula.ir.lowering.indexing.row_tables import RowTable, new_table
from tremula.ir.lowering.layouts import preferred_layout
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.lowering.tiles import LoweringOptions, Tiles
from tremula.ir.run.tile_run import capture_function, run_on_tiles
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.target import IPUModel
from tremula.poplibs.popops.slicing.embedding_plan import plan
from tremula.poplibs.popops.slicing.layout import create_sliceable_tensor

aten = torch.ops.aten
REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


@pytest.fixture
def values():
    """A tensor, a source of its shape, indices that count back, others, and indices of elements."""
    random = torch.Generator().manual_seed(7)
    return (
        torch.randn(3, 4, 5, generator=random),
        torch.randn(3, 4, 5, generator=random),
        torch.tensor([0, -1, 2]),
        torch.tensor([2, 0, 0]),
        torch.randint(0, 3, (3, 4, 5), generator=random),
    )


def of_type(values, dtype):
    return [v.to(dtype) if v.is_floating_point() else v for v in values]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_lookups(values, dtype):
    """One or several indices, gaps, broadcasting, negative ones; gather; index_select."""

    def function(x, _source, i, j, places):
        column = j.view(3, 1, 1)
        return [
            x[i], x[:, i], x[i, j], x[:, i, j], x[i, :, j], x[i[:, None], j], x[..., i],
            x[i, None, j], x[:, :, i[:, None]], x[i, j, i], x.transpose(0, 2)[i], x[1][j],
            x[:, ::2][i], x[j.to(torch.int32)],
            torch.index_select(x, 1, j), torch.index_select(x, -1, j), torch.index_select(x, 0, j),
            torch.gather(x, 1, places), torch.gather(x, 2, places[:, :2, :3]),
            torch.gather(x, 0, column.expand(3, 4, 5)), torch.gather(x[0, 0], 0, j),
            torch.take_along_dim(x, places, 1), torch.take(x, j), x[0, 0][places],
        ]  # fmt: skip

    assert_like_aten(function, *of_type(values, dtype))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_updates(values, dtype):
    """Values are written, or added up where indices are equal, at any form of index."""

    def function(x, source, i, j, places):
        column = j.view(3, 1, 1)
        two = x.new_full((4,), 2.0)
        wide = column.expand(3, 4, 5)
        return [
            aten.index_put(x, [i], source[:3, :1, :1]), aten.index_put(x, [i, i], source[0, :3]),
            aten.index_put(x, [None, j], source[:, :3], True),
            aten.index_put(x, [i, None, j], two, True), aten.index_put(x, [j], source, True),
            aten.index_put(x, [x > 0], two[0]), aten.index_put(x, [x > 0], two[:1], True),
            aten.index_put(torch.zeros_like(x), [j], source, True),
            torch.index_add(x, 1, j, source[:, :3], alpha=2), torch.index_add(x, 0, j, source),
            torch.index_copy(x, 1, i.abs(), source[:, :3]), torch.index_fill(x, 2, j, 3.0),
            torch.scatter(x, 1, places[:, :1], source), torch.scatter(x, 2, places[:, :, :1], 3.0),
            torch.scatter_add(x, 1, places, source), torch.scatter_add(x, 0, wide, source),
            torch.scatter_add(x, 1, places[:2, :3], source),
            torch.scatter(x, 0, wide, 2.0, reduce="add"),
            torch.scatter(x, 1, places, 2.0, reduce="multiply"),
        ]  # fmt: skip

    assert_like_aten(function, *of_type(values, dtype))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_scatter_reduce(values, dtype):
    """Every reduction, with and without the old values, by element and by row."""

    def function(x, source, _i, j, places):
        wide = j.view(3, 1, 1).expand(3, 4, 5)
        return [
            torch.scatter_reduce(x, dim, index, source, reduction, include_self=include)
            for reduction in REDUCTIONS
            for include in (True, False)
            for dim, index in ((1, places), (0, wide))
        ]

    assert_like_aten(function, *of_type(values, dtype))


@pytest.mark.slow
def test_other_types():
    """Bools and whole numbers of all widths are looked up and added; means round down."""

    def function(i, *tables):
        results = []
        for x in tables:
            source = x[:5]
            results += [x[i], torch.gather(x, 0, i), torch.scatter(x, 0, i, source)]
            if x.dtype is torch.bool:
                continue
            results += [torch.scatter_add(x, 0, i, source), torch.index_add(x, 0, i, source)]
            for reduction in REDUCTIONS if x.dtype is not torch.uint8 else ("sum", "prod"):
                for include in (True, False):
                    more = {"include_self": include}
                    results.append(torch.scatter_reduce(x, 0, i, source, reduction, **more))
        return results

    numbers = torch.tensor([-3, 5, 0, 2, -7, 1, 4, 6])
    types = (torch.int64, torch.int16, torch.int8)
    tables = [numbers.to(t) for t in types]
    i = torch.tensor([0, 3, 1, 7, 4])
    assert_like_aten(function, i, *tables, numbers.abs().to(torch.uint8), numbers > 0)


@pytest.mark.slow
def test_gradients(values):
    """Gradients of lookups are updates, and the other way round."""

    def function(x, source, i, j, places):
        x, source = (t.detach().requires_grad_() for t in (x, source))
        table = x.flatten(0, 1)
        looked = F.embedding(places[0], table) * source[:1, :, :, None].mean()
        padded = F.embedding(places[1], table, padding_idx=2).square().sum()
        total = looked.square().sum() + padded + x[i, :, j].sum() * x[j].square().mean()
        total = total + torch.gather(x, 1, places).square().sum()
        total = total + torch.scatter_add(x, 0, places, source).square().sum()
        total = total + torch.index_select(source, 2, j).exp().sum()
        return torch.autograd.grad(total, (x, source))

    assert_like_aten(function, *values, atol=1e-5)


def test_masks():
    """Values written where a mask is true, in their order, and the gradients of both."""

    def function(x, source, mask):
        x, source = (t.detach().requires_grad_() for t in (x, source))
        y = torch.masked_scatter(x, mask, source)
        return [y, *torch.autograd.grad(y.square().sum(), (x, source))]

    random = torch.Generator().manual_seed(8)
    x, source = (torch.randn(4, 6, generator=random) for _ in range(2))
    assert_like_aten(function, x, source, torch.rand(4, 6, generator=random) > 0.5)


def compute_sets(function, inputs, **options):
    step = capture_function(function, inputs)
    target = IPUModel("bow", tiles_per_ipu=8).create_device().target
    built = build_tile_program(step, target, Schedule(), LoweringOptions(**options))
    return [s.name for s in built.graph.state.compute_sets]


def test_gradient_of_an_embedding_is_one_update():
    """Zeros and one multi-update, whether ATen says it by its name or as index_put."""
    gradient, i = torch.randn(6, 8), torch.randint(0, 40, (6,))

    def by_name(gradient, i):
        return aten.embedding_dense_backward(gradient, i, 40, -1, False)

    def by_put(gradient, i):
        return aten.index_put(torch.zeros(40, 8), [i], gradient, True)

    for function in (by_name, by_put):
        names = compute_sets(function, [gradient, i], is_training=True)
        updates = [n for n in names if not n.endswith(("zero", "rows", "fill"))]
        assert len(updates) <= 3, names


def test_tables_lie_as_their_lookups_want_them():
    """The table of an embedding, and its gradient in training, follow one plan."""
    step = capture_function(
        lambda table, i: F.embedding(i, table), [torch.randn(40, 8), torch.randint(0, 40, (6,))]
    )
    graph = Graph(IPUModel("bow", tiles_per_ipu=8).create_device())
    tiles = lambda node: Tiles(graph, Sequence(), node, LoweringOptions())  # noqa: E731
    table = preferred_layout(step.placeholders()[0], tiles)
    wanted = create_sliceable_tensor(
        graph, FLOAT, (40, 8), plan=plan(graph, FLOAT, 40, 8, 6, {"used_for_update": False})
    )
    of_table, of_wanted = graph.get_tile_mapping(table), graph.get_tile_mapping(wanted)
    assert of_table.tile.tolist() == of_wanted.tile.tolist()
    assert of_table.begin.tolist() == of_wanted.begin.tolist()


@pytest.mark.parametrize("is_multiplied", [False, True])
def test_table_that_is_multiplied_too(is_multiplied):
    """Rows of its blocks are long where a product rearranges it, and its gradient lies alike."""

    def function(rows, table):
        looked_up = F.embedding(rows, table)
        return looked_up @ table.t() if is_multiplied else looked_up

    step = capture_function(function, [torch.tensor([3, 1, 3]), torch.zeros(400, 64)])
    graph, shared = Graph(IPUModel("bow", tiles_per_ipu=64).create_device()), {}
    options = LoweringOptions(is_training=True)
    tiles = lambda node: Tiles(graph, Sequence(), node, options, shared)  # noqa: E731
    node = step.placeholders()[1]
    table = preferred_layout(node, tiles)
    gradient = new_table(tiles(node), RowTable(1, 400, 64, 3), FLOAT, "add")[0]
    cuts = table.pieces.cuts
    assert (cuts.width(np.arange(len(cuts.column) - 1)).min() * 4 >= 128) == is_multiplied
    assert gradient.pieces.cuts == cuts


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gradients_by_frequency(dtype):
    """Rows that were looked up more than once get the mean of their gradients; padding none."""

    def function(gradient, rows):
        backward = aten.embedding_dense_backward
        return [backward(gradient, rows, 5, -1, True), backward(gradient, rows, 5, 2, True)]

    assert_like_aten(function, torch.randn(4, 2).to(dtype), torch.tensor([1, 2, 1, 4]))


OUT_OF_RANGE = {
    "embedding": (lambda t, i: F.embedding(i, t), "0 to 4"),
    "index_select": (lambda t, i: t.index_select(0, i), "0 to 4"),
    "index": (lambda t, i: t[i], "-5 to 4"),
    "gather": (lambda t, i: t.gather(0, i.expand(1, 2)), "0 to 4"),
    "index_put": (lambda t, i: t.index_put((i,), t[:2]), "-5 to 4"),
    "scatter_add": (lambda t, i: t.scatter_add(0, i.expand(1, 2), t), "0 to 4"),
    "nll_loss_forward": (lambda t, i: F.nll_loss(t[:2], i), "0 to 2"),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_strict_mode_stops_at_an_index_out_of_range(name):
    """Strict mode names operation, module, range and line; without it such an index has no row."""
    function, wanted = OUT_OF_RANGE[name]
    table, indices = torch.randn(5, 3), torch.tensor([1, 7])
    (result,) = run_on_tiles(function, table, indices)
    assert result.isfinite().all()
    with pytest.raises(ApplicationRuntimeError) as error:
        run_on_tiles(function, table, indices, engine_options={"debug.strict": True})
    assert f"aten::{name} in the model: an index is out of range, expected {wanted};" in str(
        error.value
    )
    assert "test_lookups.py:" in str(error.value)


def test_strict_mode_lets_good_indices_pass():
    """Negative indices count back, an ignored label has no class: neither is out of range."""

    def function(t, i):
        return [t[i - 2], F.nll_loss(t[:2], i, ignore_index=1)]

    table, indices = torch.randn(5, 3), torch.tensor([1, 0])
    result = run_on_tiles(function, table, indices, engine_options={"debug.strict": True})
    assert_close(result[0], table[indices - 2], "rows")

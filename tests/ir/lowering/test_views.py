"""Views, joins and writes to parts against ATen, on tensors of several layouts."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ir.like_aten import assert_like_aten
from tremula.ir.errors import UnsupportedOperations
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.run.tile_run import capture_function
from tremula.poplar.target import IPUModel

aten = torch.ops.aten


def views(x):
    return [
        x.reshape(12, 5), x.permute(2, 0, 1), x.expand(2, 3, 4, 5), x.unsqueeze(-1),
        x.unsqueeze(1).squeeze(1), x[:1].squeeze(), x[1:], x[:, ::2], x[:, -3:100], x[..., -1],
        x.repeat(2, 1, 3), x.flip([0, -1]), x.clone(), x.roll(1, 0), x.roll((1, -2), (1, 2)),
        x.roll(7), x.diagonal(1, 0, 1), x.diagonal(-1, 1, 2), x.unfold(1, 2, 1),
        x.unfold(-1, 3, 2), x.mT, x.narrow(1, 1, 2), x.repeat_interleave(2, 1),
        x.repeat_interleave(3), *x.split(2, 1), *x.split([1, 3], 1), *x.unbind(2),
        *x.chunk(3, 2), torch.tril(x), torch.triu(x, 1), x.view(torch.int32),
    ]  # fmt: skip


def test_views():
    """Every view shows the elements that ATen shows."""
    assert_like_aten(views, torch.randn(3, 4, 5))


def test_views_of_views():
    """Views of a permuted slice give PyTorch's results."""
    x = torch.randn(7, 4, 6)
    assert_like_aten(lambda x: views(x.permute(2, 1, 0)[::2, :, 2:])[:-1], x)


def test_joins_and_borders():
    """cat, stack and padding, also of other types, of empty vectors and by negative widths."""

    def function(x, i):
        return [
            torch.cat([x, x[:1]]), torch.cat([x, x], -1), torch.cat([x[0], i]),
            torch.stack([x, x], 1), torch.cat([torch.zeros(0), x[0, 0]]),
            F.pad(x, (1, 2, 0, 3), value=1.5), F.pad(x, (-1, 2)), F.pad(i, (1, 1)),
            F.pad(x, (0, 0, -1, -2)), F.pad(x, (1, 1), mode="reflect"),
            F.pad(x, (2, 1), mode="replicate"),
        ]  # fmt: skip

    assert_like_aten(function, torch.randn(3, 4, 5), torch.randint(9, (4, 5)))


def test_joins_of_equal_layouts():
    """Tensors of one layout are joined as the first ones were, also with themselves."""

    def function(*xs):
        pairs = [(xs[0], xs[1]), (xs[2], xs[3]), (xs[1], xs[1]), (xs[3], xs[3]), (xs[3], xs[2])]
        joined = [torch.cat([a.mT, b], 1) for a, b in pairs]
        return [*joined, *(x.sum(0) for x in joined)]

    assert_like_aten(function, *(torch.randn(6, 6) for _ in range(4)))


def test_a_join_turns_parts_that_lie_otherwise():
    """A large part in columns is turned beside one in rows, whole grains or not; a small one stays.

    49 rows are those of a window of Swin.
    """

    def function(x, y):
        return torch.cat([x, y.t()], 1).sum(0)

    names = []
    for n_rows, n in ((16, 64), (49, 64), (16, 4)):
        x, y = torch.randn(n_rows, n), torch.randn(n, n_rows)
        assert_like_aten(function, x, y)
        target = IPUModel("bow", tiles_per_ipu=8).create_device().target
        built = build_tile_program(capture_function(function, [x, y]), target, Schedule())
        names.append([c.name for c in built.graph.state.compute_sets if "turned" in c.name])
    assert [len(result) for result in names] == [1, 1, 0]


def test_strided_views():
    """as_strided reads the storage that PyTorch would have, whatever the layout on tiles."""

    def function(x):
        return [
            x.as_strided((2, 3), (1, 2), 1), x.as_strided((4, 4), (2, 1), 0),
            x.transpose(0, 1).as_strided((2, 3), (1, 2), 1), x[1].as_strided((2, 3), (5, 1), 20),
            x[:, :2].as_strided((3, 2), (20, 1), 0), aten.as_strided_copy(x, (5,), (3,), 2),
            torch.as_strided_scatter(x, torch.ones(2, 3), (2, 3), (1, 2), 1),
            torch.as_strided_scatter(x.mT, torch.ones(2, 3), (2, 3), (1, 2), 1),
        ]  # fmt: skip

    assert_like_aten(function, torch.randn(3, 4, 5))


def test_writes_to_parts():
    """slice_scatter, select_scatter and diagonal_scatter leave all else as it was."""

    def function(x):
        ones = torch.ones(3, 2, 5)
        zeros = torch.zeros(3, 4, 5)
        return [
            torch.slice_scatter(x, ones, 1, 1, 3), torch.slice_scatter(x, ones, 1, 0, 4, 2),
            torch.slice_scatter(zeros, x[:, :2], 1, -3, -1),
            torch.select_scatter(x, ones[:, 0], 1, -1),
            torch.select_scatter(zeros, x[0], 0, 2), torch.diagonal_scatter(x, torch.ones(5, 3), 1),
            torch.diagonal_scatter(x, torch.ones(3, 3), -1, 1, 2), aten.copy(x, ones[:, :1]), x,
        ]  # fmt: skip

    assert_like_aten(function, torch.randn(3, 4, 5))


def test_writes_in_place():
    """What a function writes into parts of a new tensor is there afterwards."""

    def function(x):
        y = x.clone()
        y[1:, 2:] = 7
        y[0].mul_(2)
        y.diagonal(0, 1, 2).add_(1)
        y.t_() if y.dim() == 2 else y.transpose(0, 1)[2].zero_()
        z = torch.zeros(2, 3)
        z[:, 1] = x[0, :2, 0]
        return [y, z]

    assert_like_aten(function, torch.randn(3, 4, 5))


def test_gradients_of_views():
    """Gradients go back to where the elements came from."""

    def function(x, g):
        x = x.detach().requires_grad_(True)
        y = torch.cat(
            [x.permute(1, 0, 2)[:2].reshape(-1), x[..., 1:3].reshape(-1), x.flip(0)[0, 0]]
        )
        y = y + x.expand(2, 3, 4, 5).sum((0, 1, 2)).repeat(12)[:59]
        return torch.autograd.grad(y, x, g)[0]

    assert_like_aten(function, torch.randn(3, 4, 5), torch.randn(59))


STEPS = (
    lambda x, dim: x.transpose(dim, 0), lambda x, dim: x.flip(dim),
    lambda x, dim: x.narrow(dim, 0, 1), lambda x, dim: torch.cat([x, x], dim),
    lambda x, dim: x.roll(1, dim), lambda x, dim: x.reshape(*reversed(x.shape)),
    lambda x, dim: x[:, ::2].repeat(1, 1, 2, 1),
)  # fmt: skip


@settings(max_examples=10)
@given(st.data())
def test_chains_of_views(data):
    """Random chains of views agree element by element."""
    x = torch.arange(120.0).reshape(2, 3, 4, 5)
    steps = data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=5))
    dims = data.draw(st.lists(st.integers(0, 3), min_size=5, max_size=5))

    def function(x):
        for step, dim in zip(steps, dims, strict=False):
            x = STEPS[step](x, dim)
        return x + 0

    assert_like_aten(function, x)


def test_strided_views_outside_a_part_are_refused():
    """as_strided that reads beyond the part it is given has an error that says so."""

    def function(x):
        return aten.as_strided(torch.ops.aten.slice_copy(x, 0, 0, 1), (4,), (1,), 0)

    step = capture_function(function, [torch.zeros(3, 2)])
    target = IPUModel("bow", tiles_per_ipu=4).create_device().target
    with pytest.raises(UnsupportedOperations, match="reads elements outside it"):
        build_tile_program(step, target, Schedule())

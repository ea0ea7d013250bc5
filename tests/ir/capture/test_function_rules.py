"""Calls of torch functions in a model: indices of 32 bits, masks, counts, norms of halves."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.ir.like_aten import assert_close
from tests.ir.steps import captured, run_host, train_on_tiles
from tremula.ir.errors import CaptureError, UnsupportedOperations
from tremula.ir.run.tile_run import run_on_tiles

INT = torch.int32
PLACES = torch.tensor([[0, 2, 1], [3, 1, 0]], dtype=INT)
# Its name before PyTorch 2.12.
GROUPED = getattr(F, "grouped_mm", None) or torch._grouped_mm
ROWS = torch.tensor([2, 0], dtype=INT)
TABLE = torch.arange(12, dtype=INT).reshape(3, 4)
NEW = torch.tensor([[50, 60, 70], [80, 90, 100]], dtype=INT)

# f(table, places, rows, new): every function whose indices PyTorch wants as 64-bit integers.
IN_PLACE: dict[str, Callable] = {
    "scatter_": lambda t, p, _r, v: t.scatter_(1, p, v),
    "scatter_ of a number": lambda t, p, _r, _v: t.scatter_(1, p, 7),
    "scatter_ by name": lambda t, p, _r, v: t.scatter_(dim=1, index=p, src=v),
    "scatter_ reducing": lambda t, p, _r, v: t.scatter_(1, p, v, reduce="add"),
    "scatter_add_": lambda t, p, _r, v: t.scatter_add_(1, p, v),
    "scatter_reduce_": lambda t, p, _r, v: t.scatter_reduce_(1, p, v, "amax"),
    "index_copy_": lambda t, _p, r, v: t.index_copy_(0, r, torch.cat([v, v[:, :1]], 1)),
    "index_fill_": lambda t, _p, r, _v: t.index_fill_(0, r, 7),
    "index_reduce_": lambda t, _p, r, v: t.index_reduce_(0, r, torch.cat([v, v[:, :1]], 1), "amin"),
    "index_add_": lambda t, _p, r, v: t.index_add_(0, r, torch.cat([v, v[:, :1]], 1)),
    "put_": lambda t, _p, r, v: t.put_(r, v[0, :2]),
    "put_ adding": lambda t, _p, r, v: t.put_(r, v[0, :2], accumulate=True),
    "__setitem__": lambda t, _p, r, v: t.__setitem__(r, v[:, :1]),
    "out= of gather": lambda t, p, _r, _v: torch.gather(t + 1, 1, p, out=t[:2, :3]),
    "out= of take": lambda t, _p, r, _v: torch.take(t + 1, r, out=t[0, :2]),
}
NEW_TENSORS: dict[str, Callable] = {
    "gather": lambda t, p, _r, _v: t.gather(1, p),
    "torch.gather": lambda t, p, _r, _v: torch.gather(input=t, dim=1, index=p),
    "scatter": lambda t, p, _r, v: torch.scatter(t, 1, p, v),
    "scatter_add": lambda t, p, _r, v: t.scatter_add(1, p, v),
    "scatter_reduce": lambda t, p, _r, v: torch.scatter_reduce(t, 1, p, v, "sum"),
    "take": lambda t, _p, r, _v: t.take(r),
    "take_along_dim": lambda t, p, _r, _v: t[:2].take_along_dim(p, 1),
    "index_fill": lambda t, _p, r, _v: t.index_fill(0, r, 7),
    "cross_entropy": lambda t, _p, r, _v: F.cross_entropy(t[:2].float(), r),
    "nll_loss": lambda t, _p, r, _v: F.nll_loss(t[:2].float(), target=r),
    "multi_margin_loss": lambda t, _p, r, _v: F.multi_margin_loss(t[:2].float(), r),
}


def _long_in_pytorch(index: Tensor) -> Tensor:
    return index if isinstance(index, torch._subclasses.FakeTensor) else index.long()


def _through(call: Callable, *, writes: bool) -> Callable:
    """A function of the four operands; what is written is seen by the tensor and its base."""

    def function(table: Tensor, places: Tensor, rows: Tensor, new: Tensor) -> list[Tensor]:
        places, rows = _long_in_pytorch(places), _long_in_pytorch(rows)
        if not writes:
            return [call(table, places, rows, new)]
        whole, base = table.clone(), torch.stack([table, table])
        call(whole, places, rows, new)
        call(base[1], places, rows, new)
        return [whole, base]

    return function


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [INT, torch.int64, torch.float32], ids=str)
@pytest.mark.filterwarnings("ignore:The reduce argument", "ignore:index_reduce")
def test_indices_of_32_bits(dtype):
    """Only indices are cast: what an operation writes is the tensor itself, of any type."""
    operands = TABLE.to(dtype), PLACES, ROWS, NEW.to(dtype)
    for calls in (IN_PLACE, NEW_TENSORS):
        for name, call in calls.items():
            function = _through(call, writes=calls is IN_PLACE)
            result = run_host(captured(function, *operands), *operands)
            for got, right in zip(result, function(*operands), strict=True):
                torch.testing.assert_close(got, right, msg=lambda text, n=name: f"{n}: {text}")


def test_the_result_of_a_product_is_not_cast():
    """`out=` of a product is the tensor given; one of another type is PyTorch's error."""

    def function(x, w):
        out = torch.zeros(2, 2)
        torch.mm(x, w, out=out)
        return out

    x = torch.eye(2)
    assert torch.equal(run_host(captured(function, x, x), x, x)[0], x)


# -- masks -----------------------------------------------------------------------------------------

MASKED: dict[str, Callable] = {
    "a number": lambda y, _x: y.__setitem__(y > 0, 5),
    "a scalar": lambda y, x: y.__setitem__(y > 0, x[0, 0, 0]),
    "one element": lambda y, x: y.__setitem__(y > 0, x[0, 0, :1]),
    "rows": lambda y, x: y.__setitem__(y[:, :, 0] > 0, x[0, 0]),
    "rows with a leading one": lambda y, x: y.__setitem__(y[:, :, 0] > 0, x[0, :1]),
    "matrices": lambda y, x: y.__setitem__(y[:, 0, 0] > 0, x[0]),
    "behind a slice": lambda y, x: y.__setitem__((slice(None), y[0, :, 0] > 0), x[:, :1, :1]),
    "behind an ellipsis": lambda y, x: y.__setitem__((..., y[0, 0] > 0), x[:, :, :1]),
    "between numbers": lambda y, x: y.__setitem__((1, y[1, :, 0] > 0, 2), x[0, 0, 0]),
    "before a slice": lambda y, x: y.__setitem__((y[:, :, 0] > 0, slice(1, 3)), x[0, 0, 1:3]),
    "of halves": lambda y, x: y.__setitem__(y > 0, x[0, 0, 0].half()),
}
CUBE = torch.tensor([1.0, -2, 3, -4, 5, 6, -7, 8, -9, 10, 11, -12] * 2).reshape(2, 3, 4) / 4


@pytest.mark.slow
def test_writes_by_a_mask():
    """x[mask] = v for one v, or one that broadcasts over what the mask selects, on tiles."""

    def function(x):
        result = []
        for write in MASKED.values():
            y = x.clone()
            write(y, x)
            result.append(y)
        return result

    wanted = function(CUBE)
    for run in (run_on_tiles, lambda f, x: run_host(captured(f, x), x)):
        for name, got, right in zip(MASKED, run(function, CUBE), wanted, strict=True):
            assert_close(got, right, name)


ONE_BY_ONE: dict[str, Callable] = {
    "elements": lambda y, x, m: y.__setitem__(m > 0, x.flatten()[:14]),
    "rows": lambda y, x, m: y.__setitem__(m[:, :, 0] > 0, x.flatten()[:16].reshape(4, 4)),
    "behind a slice": lambda y, x, m: y.__setitem__((slice(None), m[0, :, 0] > 0), x[:, 1:]),
    "added": lambda y, x, m: y.index_put_((m > 0,), x.flatten()[:14], True),
    "added rows": lambda y, x, m: y.index_put_((m[:, :, 0] > 0,), x[0, 0], True),
}


@pytest.mark.slow
def test_a_mask_and_as_many_values():
    """One value after another goes to what the mask selects; values and x have gradients."""

    def function(x, m):
        result = []
        for write in ONE_BY_ONE.values():
            y, leaf = x * 2, x.detach().requires_grad_(True)
            write(y, x, m)
            z = leaf * 2
            write(z, leaf, m)
            result += [y, *torch.autograd.grad((z * z).sum(), leaf)]
        return result

    wanted = function(CUBE, CUBE)
    for run in (run_on_tiles, lambda f, *xs: run_host(captured(f, *xs), *xs)):
        for got, right in zip(run(function, CUBE, CUBE), wanted, strict=True):
            assert_close(got, right, "result")


def test_a_mask_beside_indices_is_refused_on_tiles():
    """How many pairs there are depends on values; the error says so."""
    with pytest.raises(UnsupportedOperations, match="pairs them with the places"):
        run_on_tiles(lambda x, m: x.index_put((m, m[:1].long()), x[0, 0]), CUBE, CUBE[:, 0, 0] > 0)


# -- counts and places in tensors ------------------------------------------------------------------


def test_repeat_interleave_by_a_tensor():
    """Counts that are not known need the size of the result; known ones need nothing."""
    counts = torch.tensor([2, 0, 3])

    def function(x, counts):
        leaf = x.detach().requires_grad_(True)
        y = leaf.repeat_interleave(counts, 1, output_size=5)
        known = x.repeat_interleave(torch.tensor([1, 0, 2]), -2)
        flat = torch.repeat_interleave(x[0, :, 0], counts, output_size=5)
        return [y, *torch.autograd.grad((y * y).sum(), leaf), flat, known]

    wanted = function(CUBE, counts)
    for run in (run_on_tiles, lambda f, *xs: run_host(captured(f, *xs), *xs)):
        for got, right in zip(run(function, CUBE, counts), wanted, strict=True):
            assert_close(got, right, "result")
    with pytest.raises(CaptureError, match="give output_size"):
        captured(lambda x, n: x.repeat_interleave(n, 1), CUBE, counts)


def test_tensor_split_by_a_tensor():
    """Places that constants tell are numbers; others are refused, for shapes depend on them."""

    def function(x):
        places = torch.tensor([1, 2])
        return [*x.tensor_split(places, 1), *torch.tensor_split(x, 2), *x.tensor_split((1,), dim=2)]

    for got, right in zip(run_host(captured(function, CUBE), CUBE), function(CUBE), strict=True):
        assert torch.equal(got, right)
    with pytest.raises(CaptureError, match="depend on values of the tensor that splits"):
        captured(lambda x, at: x.tensor_split(at, 1), CUBE, torch.tensor([1, 2]))


def test_products_of_groups_of_rows():
    """Rows times the matrix of their group, where groups end known only when it runs."""
    ends = torch.tensor([2, 2, 5], dtype=INT)
    x, weights = torch.linspace(-1, 1, 24).reshape(6, 4), torch.linspace(0, 2, 24).reshape(3, 4, 2)

    def function(x, weights, ends):
        leaves = [t.detach().requires_grad_(True) for t in (x, weights)]
        y = GROUPED(*leaves, offs=ends)[:5]
        return [y, *torch.autograd.grad((y * y).sum(), leaves)]

    groups = [x[:2] @ weights[0], x[2:5] @ weights[2]]
    for run in (run_on_tiles, lambda f, *xs: run_host(captured(f, *xs), *xs)):
        y, of_x, of_weights = run(function, x, weights, ends)
        assert_close(y, torch.cat(groups), "product")
        assert_close(of_x[:2], 2 * groups[0] @ weights[0].T, "gradient of rows")
        assert_close(of_weights[2], x[2:5].T @ (2 * groups[1]), "gradient of a matrix")
        assert not of_weights[1].any()


def test_histogram_of_whole_numbers():
    """What PyTorch has on GPUs only, in the type of the numbers."""
    x = torch.tensor([0, 3, 1, 3, 2, 7], dtype=INT)
    for run in (run_on_tiles, lambda f, x: run_host(captured(f, x), x)):
        (result,) = run(lambda x: torch.histc(x, 4, 0, 3), x)
        assert torch.equal(result, torch.tensor([1, 1, 1, 2], dtype=INT))


# -- norms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_of_halves_with_float_statistics(training):
    """Halves, weights of halves, statistics of floats: as in float, rounded."""
    x = torch.linspace(-2, 3, 48).reshape(6, 8) ** 3 / 8

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(8)

        def forward(self, x):
            y = self.norm(x)
            return y, F.mse_loss(y, torch.ones_like(y))

    model = Model().half().train(training)
    for name in ("running_mean", "running_var"):
        setattr(model.norm, name, getattr(model.norm, name).float())
    (wanted, _), right = Model().train(training)(x), {"rtol": 0.01, "atol": 2e-3}
    trained = train_on_tiles(model, x.half())
    for got in (run_host(captured(model, x.half()), x.half(), model=model)[0], trained.outputs[0]):
        assert got.dtype is torch.float16
        torch.testing.assert_close(got.float(), wanted.detach(), **right)
    assert all(weight.dtype is torch.float16 for weight in trained.weights)

"""Writes: `out=` of every kind, operations in place, and views in place, against PyTorch."""

import contextlib
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor

from tests.ir.steps import captured, run_host
from tremula.ir.run.tile_run import run_on_tiles

pytestmark = pytest.mark.slow

FLOAT, HALF, INT, LONG, BOOL = torch.float32, torch.float16, torch.int32, torch.int64, torch.bool
X = torch.tensor([[1.75, -2.5, 0.5, 3.25], [0.25, 4.5, -1.5, 2.75], [-0.5, 1.25, 2.25, -3.75]])


def assert_as_pytorch(function: Callable, *inputs: Tensor) -> None:
    """Results, types and shapes agree."""
    wanted = function(*[x.clone() for x in inputs])
    result = run_host(captured(function, *inputs), *[x.clone() for x in inputs])
    for number, (got, right) in enumerate(zip(result, wanted, strict=True)):
        assert (got.dtype, got.shape) == (right.dtype, right.shape), f"result {number}"
        torch.testing.assert_close(got, right, equal_nan=True, rtol=1e-6, atol=0)


def accepted(calls: Iterable[Callable], *inputs: Tensor) -> list[Callable]:
    """The calls that PyTorch itself does not reject."""
    result = []
    for call in calls:
        with contextlib.suppress(RuntimeError, NotImplementedError, TypeError):
            call(*[x.clone() for x in inputs])
            result.append(call)
    return result


def all_of(calls: list[Callable]) -> Callable:
    return lambda *inputs: [result for call in calls for result in call(*inputs)]


# Functions of a matrix and what they give into `out=`: one tensor, or several.
def _with(name: str, *more: Callable[[Tensor], object]) -> Callable:
    function = getattr(torch, name)
    return lambda x, out: function(x, *(argument(x) for argument in more), out=out)


ONE_RESULT: dict[str, Callable] = {
    **{
        name: _with(name)
        for name in "abs exp sqrt neg sign floor sigmoid tanh signbit logical_not sin log1p".split()
    },
    **{
        name: _with(name, lambda x: x.flip(0))
        for name in "add sub mul div maximum pow fmod eq lt logical_and atan2 hypot".split()
    },
    **{
        name: _with(name, lambda _: 1)
        for name in "sum mean prod nansum cumsum cumprod logcumsumexp amax argmax any all".split()
    },
    "floor_divide": lambda x, out: torch.floor_divide(x, 2, out=out),
    "clamp": lambda x, out: torch.clamp(x, -1, 1, out=out),
    "where": lambda x, out: torch.where(x > 0, x, -x, out=out),
    "round": lambda x, out: torch.round(x, decimals=1, out=out),
    "addcmul": lambda x, out: torch.addcmul(x, x, x, value=0.5, out=out),
    "lerp": lambda x, out: torch.lerp(x, -x, 0.25, out=out),
    "mm": lambda x, out: torch.mm(x, x.T, out=out),
    "matmul": lambda x, out: torch.matmul(x, x.T, out=out),
    "addmm": lambda x, out: torch.addmm(x[:, :3], x, x.T, out=out),
    "cat": lambda x, out: torch.cat([x, x], 1, out=out),
    "stack": lambda x, out: torch.stack([x, x], out=out),
    "tril": lambda x, out: torch.tril(x, out=out),
    "index_select": lambda x, out: torch.index_select(x, 0, torch.tensor([2, 0]), out=out),
    "gather": lambda x, out: torch.gather(x, 1, torch.tensor([[1, 0, 1, 3]] * 3), out=out),
    "take": lambda x, out: torch.take(x, torch.tensor([5, 0]), out=out),
    "norm": lambda x, out: torch.linalg.vector_norm(x, dim=1, out=out),
    "std": lambda x, out: torch.std(x, 1, out=out),
    "arange": lambda x, out: torch.arange(1, 7, 2, out=out),
    "linspace": lambda x, out: torch.linspace(0, 3, 4, out=out),
    "full": lambda x, out: torch.full((2, 2), 3, out=out),
    "zeros": lambda x, out: torch.zeros((2, 3), out=out),
    "eye": lambda x, out: torch.eye(3, out=out),
}
SEVERAL_RESULTS: dict[str, Callable] = {
    "max": lambda x, out: torch.max(x, 1, out=out),
    "min": lambda x, out: torch.min(x, 0, keepdim=True, out=out),
    "sort": lambda x, out: torch.sort(x, 1, out=out),
    "topk": lambda x, out: torch.topk(x, 2, out=out),
    "kthvalue": lambda x, out: torch.kthvalue(x, 2, out=out),
    "median": lambda x, out: torch.median(x, 1, out=out),
    "mode": lambda x, out: torch.mode(x, 1, out=out),
    "cummax": lambda x, out: torch.cummax(x, 1, out=out),
    "cummin": lambda x, out: torch.cummin(x, 0, out=out),
}
SEVERAL_FLOATS: dict[str, Callable] = {
    "aminmax": lambda x, out: torch.aminmax(x, dim=0, out=out),
    "slogdet": lambda x, out: torch.linalg.slogdet(x @ x.T, out=out),
    "qr": lambda x, out: torch.linalg.qr(x, out=out),
}


def _into(call: Callable, shape: list[int], *dtypes: torch.dtype) -> Callable:
    """A call that writes tensors of these types, and whether they are what it gives."""

    def function(x: Tensor) -> list[Tensor]:
        outs = tuple(torch.zeros(shape, dtype=dtype) for dtype in dtypes)
        results = call(x, outs if len(outs) > 1 else outs[0])
        results = tuple(results) if len(outs) > 1 else (results,)
        are_same = all(a is b for a, b in zip(results, outs, strict=True))
        return [*outs, *(out * 1 for out in outs), torch.tensor(are_same)]

    return function


@pytest.mark.parametrize("dtype", [FLOAT, HALF, INT, LONG, BOOL], ids=str)
@pytest.mark.filterwarnings("ignore:.*tensor.*resized", "ignore:An output with one or more")
def test_out_has_its_own_type(dtype):
    """What `out=` gets has the type of the tensor given, which is the result, as in PyTorch."""
    shapes = ([0], [1]) if dtype is FLOAT else ([0],)  # empty, or to be resized
    for shape in shapes:
        calls = accepted((_into(call, shape, dtype) for call in ONE_RESULT.values()), X)
        assert len(calls) >= {FLOAT: 40, HALF: 30, INT: 12, LONG: 12, BOOL: 10}[dtype]
        assert_as_pytorch(all_of(calls), X)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("shape", [[0], [3, 4]], ids=str)
def test_several_results_of_out(shape):
    """Each tensor of `out=(…, …)` is written."""
    calls = [_into(call, shape, FLOAT, LONG) for call in SEVERAL_RESULTS.values()]
    calls += [_into(call, shape, FLOAT, FLOAT) for call in SEVERAL_FLOATS.values()]
    assert_as_pytorch(all_of(calls), X)


def test_out_that_is_seen_elsewhere():
    """A view given as `out=` writes its base; views of a tensor given see the write."""

    def function(x):
        table, whole = torch.zeros(2, 3, 4), torch.zeros(3, 4)
        torch.exp(x, out=table[1])
        row = whole[1]
        torch.sub(x, 1, out=whole)
        torch.cumsum(x[0], 0, out=whole[2])
        return [table, whole, row]

    assert_as_pytorch(function, X)


IN_PLACE = [
    *"add_ sub_ mul_ div_ pow_ copy_ fmod_ remainder_ atan2_ eq_ lt_ ge_ logical_and_".split(),
    *"floor_divide_ bitwise_and_ bitwise_or_ hypot_ xlogy_ nextafter_ logical_xor_ ne_".split(),
    *"__iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__".split(),
]

PAIRS = [(HALF, FLOAT), (FLOAT, HALF), (FLOAT, INT), (INT, LONG), (LONG, INT), (INT, BOOL)]


@pytest.mark.parametrize(("left", "right"), PAIRS, ids=str)
def test_the_left_operand_keeps_its_type(left, right):
    """An operation in place on mixed types gives what PyTorch gives, on a tensor and on a view."""
    positive = X.abs() + 1
    operands = positive.to(left), (positive * 1.5).to(right)
    calls = accepted(map(_in_place, IN_PLACE), *operands)
    assert len(calls) >= 8
    assert_as_pytorch(all_of(calls), *operands)


def _in_place(name: str) -> Callable:
    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        whole, part = x.clone(), x.clone()
        getattr(whole, name)(y)
        getattr(part[1], name)(y[1])
        return [whole, part, whole * 1]

    return function


def test_types_and_out_on_tiles():
    """On tiles, too, halves stay halves, `out=` has its type, both of two results are given."""
    operands = X.to(HALF), X
    calls = [_in_place(name) for name in ("add_", "__isub__", "mul_")]
    calls.append(lambda _, x: _into(ONE_RESULT["cumsum"], [0], INT)(x)[:1])
    calls.append(lambda _, x: _into(SEVERAL_RESULTS["max"], [0], FLOAT, LONG)(x)[:2])
    wanted = all_of(calls)(*operands)
    for got, right in zip(run_on_tiles(all_of(calls), *operands), wanted, strict=True):
        assert got.dtype == (INT if right.dtype is LONG else right.dtype)
        torch.testing.assert_close(got, right.to(got.dtype), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["add_", "sub_", "mul_", "__imul__"])
def test_what_the_left_type_cannot_hold_is_refused(name):
    """Fractions into whole numbers: PyTorch's error."""
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output"):
        captured(_in_place(name), X.to(INT), X)


def test_views_in_place():
    """squeeze_, t_ and the like: the tensor is seen otherwise, what shares memory stays."""

    def function(x):
        row, rest = x[:1].clone(), x.clone()
        first = row[0]
        row.squeeze_(0).add_(1)
        part = rest[:1]
        part.squeeze_(0)
        part.mul_(3)
        turned = x.clone()
        turned.t_()
        turned[0].zero_()
        wide = x.clone().unsqueeze_(0).transpose_(1, 2)
        wide.add_(wide.detach_())
        return [row, first, rest, part, turned, turned.swapaxes_(0, 1), wide]

    assert_as_pytorch(function, X)


@pytest.mark.parametrize("dtype", [FLOAT, HALF, INT], ids=str)
def test_whole_numbers_drawn_in_place(dtype):
    """random_ keeps the bounds it is given, or draws from all that the type can hold."""

    def function(x):
        x = x.to(dtype)
        return [x.clone().random_(3, 5), x.clone().random_(2), x.clone().random_()]

    drawn, below, free = run_host(captured(function, X), X)
    assert drawn.dtype == below.dtype == free.dtype == dtype
    assert set(drawn.flatten().tolist()) <= {3, 4}
    assert set(below.flatten().tolist()) <= {0, 1}
    assert 500 < int(free.max()) < 2**31

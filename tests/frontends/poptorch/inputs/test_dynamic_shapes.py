"""Shapes and values that only running a model would tell: rejected with the described texts."""

import re

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.frontends.poptorch.models import assert_same_everywhere, on_host

X = torch.arange(24.0).reshape(4, 6)


def write_every_other(x):
    y = x.clone()
    y[:, ::2] += 1
    return y


BINCOUNT = (
    "Bincount `minlength` must be specified and must be a constant. On the IPU MK2 platform the"
    " minimum length is also the maximum length"
)
REJECTED = [
    ("one_hot", lambda x: F.one_hot(x.long()),
     "OneHot num classes must be specified and must be constant."),
    ("bincount", lambda x: torch.bincount(x[0].long()),
     BINCOUNT),
    ("bincount method", lambda x: x[0].long().bincount(), "Bincount `minlength` must be specified"),
    ("item", lambda x: x * x.sum().item(), "aten::item is only supported in eager mode"),
    ("int", lambda x: x * int(x[0, 0]), "aten::item is only supported in eager mode"),
    ("if", lambda x: x if x.sum() > 0 else -x, "aten::item is only supported in eager mode"),
    ("mask", lambda x: x[x > 3], "indexing by a mask"),
    ("nonzero", lambda x: torch.nonzero(x + 1), "depends on values"),
    ("masked_select", lambda x: x.masked_select(x > 3), "depends on values"),
    ("unique", lambda x: torch.unique(x + 1), "depends on values"),
    ("repeat_interleave", lambda x: x[0].repeat_interleave(x[0].long()), "depends on values"),
    ("strided write", write_every_other,
     "In-place modification of slices with step size other than 1 is not supported."),
    ("topk", lambda x: x.topk(2, sorted=False)[0], "topk(sorted=False) is not supported"),
    ("topk positional", lambda x: torch.topk(x, 2, 1, True, False)[0], "topk(sorted=False)"),
    ("slice", lambda x: x[x[0, 0].long() : x[0, 1].long()],
     "its end must be its start plus a constant"),
    ("open slice", lambda x: x[x[0, 0].long() :], "its end must be its start plus a constant"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "text"), [r[1:] for r in REJECTED], ids=[r[0] for r in REJECTED]
)
def test_rejected(function, text):
    """Each is an error of PopTorch with its text and the user's line."""
    with pytest.raises(poptorch.Error, match=re.escape(text)) as caught:
        on_host(function, X)
    assert "test_dynamic_shapes.py" in str(caught.value)


@pytest.mark.slow
def test_static_forms():
    """With sizes that are known the same operations work, on the host and on tiles."""
    indices = torch.tensor([1, 0, 3])

    def function(x, i):
        return [
            F.one_hot(i, 4),
            F.one_hot(i, num_classes=5),
            torch.bincount(i, minlength=4),
            i.bincount(weights=x[0, :3], minlength=6),
            *x.topk(2),
            F.max_pool1d(x, 2),
        ]

    assert_same_everywhere(function, X, indices)


def test_bins_beyond_the_length():
    """The smallest length is also the largest: the result never grows."""
    result = on_host(lambda i: torch.bincount(i, minlength=6), torch.tensor([1, 1, 5]))
    assert result.tolist() == [0, 2, 0, 0, 0, 1]


def test_writes_by_a_mask():
    """x[mask] = number has the shape of x, so it is allowed."""

    def function(x):
        y = x.clone()
        y[y > 7] = 1.0
        z = x.clone()
        z[z[:, 0] > 7] = torch.tensor(2.0)
        return y, z

    assert_same_everywhere(function, X, tiles=False)


def test_slices_with_tensor_bounds():
    """Where end - start is constant a slice may begin anywhere; it goes on at the beginning."""

    def function(x, start):
        z = x.clone()
        z[:, start : start + 2] = 0
        w = x.clone()
        w[:, start - 1 : start] += 5
        end = start.reshape(()) + 1
        return [x[:, start - 2 : start], x[1:3, ..., start - 1 : end], z, w, x.narrow(1, start, 1)]

    start = torch.tensor(4)
    wanted = [X[:, 2:4], X[1:3, 3:5], X.clone(), X.clone(), X[:, 4:5]]
    wanted[2][:, 4:6] = 0
    wanted[3][:, 3:4] += 5
    for got, right in zip(on_host(function, X, start), wanted, strict=True):
        torch.testing.assert_close(got, right)
    wrapped = on_host(lambda x, s: x[:, s : s + 3], X, torch.tensor(4))
    torch.testing.assert_close(wrapped, X[:, [4, 5, 0]])


def test_reading_every_other_element():
    """Only writing slices with steps is rejected."""
    torch.testing.assert_close(on_host(lambda x: x[:, ::2] + 1, X), X[:, ::2] + 1)

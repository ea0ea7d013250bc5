"""Repeated calls with fake tensors give what PyTorch's fake tensors give."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from tremula.ir import fake_results
from tremula.ir.fake_results import call_with_fakes, new_contiguous_fake, new_fake_like

aten = torch.ops.aten
CALLS = {
    "sum of two": (aten.add.Tensor, lambda x, y: (x, y)),
    "broadcast": (aten.mul.Tensor, lambda x, y: (x, y[:1])),
    "whole number": (aten.mul.Tensor, lambda x, y: (y.to(torch.int32), 2)),
    "float": (aten.mul.Tensor, lambda x, y: (y.to(torch.int32), 2.0)),
    "transposed": (aten.clone.default, lambda x, y: (x.t(),)),
    "product": (aten.mm.default, lambda x, y: (x, y.t())),
    "list": (aten.cat.default, lambda x, y: ([x, y[1:]], 0)),
    "view": (aten.view.default, lambda x, y: (x, [2, 12])),
    "view of a part": (aten.view.default, lambda x, y: (x[1:], [3, 6, 1])),
    "slice": (aten.slice.Tensor, lambda x, y: (y, 1, 2, 5)),
    "permuted": (aten.permute.default, lambda x, y: (x[2:], [1, 0])),
    "expanded": (aten.expand.default, lambda x, y: (x[:1], [7, 6])),
    "comparison": (aten.gt.Scalar, lambda x, y: (x, 0)),
    "several results": (aten.max.dim, lambda x, y: (x, 0)),
    "in place": (aten.add_.Tensor, lambda x, y: (x, y)),
    "drawn in place": (aten.bernoulli_.float, lambda x, y: (x, 0.5)),
    "views": (aten.split.Tensor, lambda x, y: (x[1:], 4, 1)),
    "new tensors": (aten.native_layer_norm.default, lambda x, y: (x, [6], y[0], y[1], 1e-5)),
    "some of several": (
        aten.native_layer_norm_backward.default,
        lambda x, y: (x, y, [6], x[:, :1], y[:, :1], y[0], y[1], [True, False, True]),
    ),
    "unsafe view": (aten._unsafe_view.default, lambda x, y: (x, [2, 12])),
}


class CountingMode(FakeTensorMode):
    """Fakes whose calls are counted."""

    n_calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.n_calls += 1
        return super().__torch_dispatch__(func, types, args, kwargs)


def described(result):
    if result is None:
        return None
    if isinstance(result, tuple | list):
        return type(result), [described(part) for part in result]
    return result.dtype, result.shape, result.stride(), result.storage_offset(), result.device


@pytest.mark.parametrize("name", CALLS)
def test_the_second_call_gives_what_the_first_did(name, monkeypatch):
    """Types, shapes, strides and places in memory; views share the memory of their argument."""
    monkeypatch.setattr(fake_results, "_known", {})
    func, arguments = CALLS[name]
    mode = CountingMode()
    with mode:
        args = arguments(torch.ones(4, 6), torch.zeros(4, 6))
        expected = func(*args)
        call_with_fakes(func, mode, args, {})
        n_calls = mode.n_calls
        for _ in range(3):
            result = call_with_fakes(func, mode, args, {})
            assert described(result) == described(expected)
            assert (result is args[0]) == (expected is args[0])
            if isinstance(args[0], torch.Tensor):
                pairs = zip(tree_leaves(result), tree_leaves(expected), strict=True)
                for one, other in pairs:
                    assert memory_is(one, args[0]) == memory_is(other, args[0])
        assert mode.n_calls == n_calls, "the first call alone is PyTorch's"


def memory_is(tensor, of):
    return tensor is not None and tensor.untyped_storage()._cdata == of.untyped_storage()._cdata


def test_repeated_fakes_are_fakes_of_pytorch():
    """They have the attributes, dispatch keys and type that PyTorch's fakes have."""
    with FakeTensorMode() as mode:
        x = torch.ones(3)
        made = [call_with_fakes(aten.neg.default, mode, (x,), {}) for _ in range(4)]
        expected = torch.neg(x)
    for fake in made:
        assert fake.__dict__ == expected.__dict__
        assert torch._C._dispatch_keys(fake) == torch._C._dispatch_keys(expected)


def test_results_are_separate_tensors():
    """Each call gives a tensor with separate memory, of the mode that is in force."""
    first, second = FakeTensorMode(), FakeTensorMode()
    for mode in (first, second):
        with mode:
            x = torch.ones(3)
            results = [call_with_fakes(aten.neg.default, mode, (x,), {}) for _ in range(3)]
        assert len({t.untyped_storage()._cdata for t in (x, *results)}) == 4
        assert all(t.fake_mode is mode for t in results)


def test_known_values_stay_known():
    """A tensor whose value PyTorch knows is computed with, not only described."""
    with FakeTensorMode() as mode:
        two = torch.tensor(2.0)
        result = call_with_fakes(aten.mul.Tensor, mode, (two, two), {})
        again = call_with_fakes(aten.mul.Tensor, mode, (two, two), {})
    assert two.constant is None or (result.constant, again.constant) == (4.0, 4.0)


def test_numbers_of_another_default_type(monkeypatch):
    """What depends on the default type is not repeated under another one."""
    monkeypatch.setattr(fake_results, "_known", {})
    with FakeTensorMode() as mode:
        x = torch.ones(3, dtype=torch.int32)
        single = call_with_fakes(aten.mul.Tensor, mode, (x, 1.5), {})
        torch.set_default_dtype(torch.float64)
        try:
            double = call_with_fakes(aten.mul.Tensor, mode, (x, 1.5), {})
        finally:
            torch.set_default_dtype(torch.float32)
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)


def test_new_fakes():
    """A contiguous tensor again; tensors that are not contiguous, or not fake, are not."""
    with FakeTensorMode():
        x = torch.ones(3, 4)
        alike, other = new_fake_like(x), new_fake_like(x.t())
    assert described(alike) == described(x)
    assert alike.untyped_storage()._cdata != x.untyped_storage()._cdata
    assert other is None
    assert new_fake_like(torch.ones(3)) is None


def test_only_one_of_both_remembers_a_call(monkeypatch):
    """PyTorch does not describe a call that is remembered here."""
    monkeypatch.setattr(fake_results, "_known", {})
    FakeTensorMode.cache_clear()
    with FakeTensorMode() as mode:
        x = torch.empty(3, 5)
        n_before = FakeTensorMode.cache_info().size
        for _ in range(2):
            call_with_fakes(aten.logsumexp.default, mode, (x, [1]), {})
        assert FakeTensorMode.cache_info().size == n_before
        torch.logsumexp(x, 1)
        assert FakeTensorMode.cache_info().size > n_before


def test_contiguous_fake_of_a_strided_one():
    """What PyTorch makes of its shape and type, in separate memory."""
    with FakeTensorMode():
        x = torch.ones(3, 4, dtype=torch.float16)[:, 1:3]
        assert described(new_contiguous_fake(x)) == described(x.contiguous())

"""After a recording, whatever happened, the user's module is what it was."""

import contextlib
import copy
import warnings

import pytest
import torch
from torch import Tensor, nn

from tests.ir.capture.torch_modules import ALL, CASES, HOLDERS
from tests.ir.steps import captured
from tests.sampling import one_in
from tremula.ir.capture.capture import capture
from tremula.ir.errors import CaptureError

# What cannot be recorded says so; the module must not notice.
_REFUSED = (CaptureError, RuntimeError, NotImplementedError, ValueError, TypeError)


def test_every_module_of_torch_has_a_case():
    """The table below follows torch.nn."""
    assert set(ALL) <= set(CASES) | HOLDERS


def state_of(module: nn.Module) -> dict[str, object]:
    """Everything that a module and those in it hold, by identity; values of tensors by copies."""
    result: dict[str, object] = {}
    for path, inner in module.named_modules():
        result[f"{path}:class"] = type(inner)
        for name, value in vars(inner).items():
            result[f"{path}.{name}"] = value
            if isinstance(value, list | dict):
                items = value.items() if isinstance(value, dict) else enumerate(value)
                for key, item in items:
                    result[f"{path}.{name}[{key}]"] = item
    return result


def assert_unchanged(module: nn.Module, before: dict[str, object], values: dict) -> None:
    after = state_of(module)
    assert list(after) == list(before)
    changed = [name for name, value in before.items() if after[name] is not value]
    assert not changed, changed
    torch.testing.assert_close(kept_values(module), values, rtol=0, atol=0, equal_nan=True)


def kept_values(module: nn.Module) -> dict[str, Tensor]:
    lazy = nn.parameter.UninitializedTensorMixin
    state = module.state_dict(keep_vars=True).items()
    return {name: value.detach().clone() for name, value in state if not isinstance(value, lazy)}


class _Failing(nn.Module):
    """Runs a module, then fails."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, *inputs: Tensor) -> object:
        self.inner(*inputs)
        raise ZeroDivisionError("at the end of forward")


def record(model: nn.Module, inputs: tuple) -> None:
    """Run forward once, as a recording does, and keep nothing of it."""
    capture(model, lambda flat: (model(*flat), ([], None))[1], list(inputs))


def call(module: nn.Module, inputs: tuple) -> object:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return module(*inputs)


NAMES = sorted(CASES.keys() & set(ALL))  # older PyTorch has fewer


@pytest.mark.parametrize("name", one_in(4, NAMES))
@pytest.mark.filterwarnings("ignore")
def test_a_module_is_what_it_was(name):
    """Recorded as the model itself, as a shallow copy, and in a forward that fails."""
    make, inputs = CASES[name]
    torch.manual_seed(0)
    module = make()
    torch.manual_seed(0)
    reference = make()
    before, values = state_of(module), kept_values(module)
    for model in (module, copy.copy(module)):
        with contextlib.suppress(*_REFUSED):
            record(model, inputs)
        assert_unchanged(module, before, values)
    with pytest.raises((*_REFUSED, ZeroDivisionError)):
        record(_Failing(module), inputs)
    assert_unchanged(module, before, values)
    torch.testing.assert_close(call(module, inputs), call(reference, inputs), rtol=0, atol=0)


class _Cache:
    def __init__(self, x: Tensor):
        self.rows = [x]


class _Remembering(nn.Module):
    """Keeps tensors of forward in attributes of every kind."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.rows, self.by_name, self.last = [torch.ones(4)], {"a": torch.ones(4)}, None
        self.offset = torch.ones(4)
        self.n_calls = 0

    def forward(self, x: Tensor, fails: bool = False) -> Tensor:
        self.n_calls += 1
        y = self.linear(x) + self.offset + self.rows[0]
        self.rows.append(y)
        self.by_name["b"] = y
        self.last, self.cache, self.pair = y, _Cache(y), (1, y)
        self.offset.add_(1)
        self.linear.hidden = y
        self.offset = y
        if fails:
            raise ZeroDivisionError
        return y + self.by_name["a"]


@pytest.mark.parametrize("fails", [False, True])
def test_what_forward_remembers_is_forgotten(fails):
    """Tensors of a recording in attributes, lists and objects of the model; numbers stay."""
    model = _Remembering()
    before, values = state_of(model), kept_values(model)
    offset = model.offset.clone()
    try:
        captured(_Wrapper(model, fails), torch.ones(2, 4))
    except ZeroDivisionError:
        assert fails
    assert model.n_calls == 1
    del before[".n_calls"]
    after = state_of(model)
    del after[".n_calls"]
    assert list(after) == list(before)
    assert all(after[name] is value for name, value in before.items())
    torch.testing.assert_close(model.offset, offset)
    torch.testing.assert_close(kept_values(model), values)


class _Wrapper(nn.Module):
    def __init__(self, inner: nn.Module, fails: bool):
        super().__init__()
        self.inner, self.fails = inner, fails

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, self.fails)

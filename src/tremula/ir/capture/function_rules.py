"""What calls of torch functions mean while a model is recorded: losses, factories, mixed types."""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from tremula.ir.capture import packed_sequences
from tremula.ir.capture.function_forms import FORMS
from tremula.ir.capture.losses import LOSS_FUNCTIONS
from tremula.ir.capture.recording import Recording
from tremula.ir.capture.static_shapes import RULES
from tremula.ir.ops import ctc as ctc_ops
from tremula.ir.ops import recurrent as recurrent_ops

# Products take the type of the activation, their first operand; weights are cast to it.
_PRODUCTS: frozenset[Callable] = frozenset(
    {
        F.linear,
        F.bilinear,
        torch.matmul,
        torch.mm,
        torch.bmm,
        Tensor.matmul,
        Tensor.mm,
        Tensor.bmm,
        Tensor.__matmul__,
        F.conv1d,
        F.conv2d,
        F.conv3d,
        F.conv_transpose1d,
        F.conv_transpose2d,
        F.conv_transpose3d,
    }
)
# The device has 32-bit integers only, so a script may give these where PyTorch wants 64-bit ones.
_WANTS_LONG_INDICES: frozenset[Callable] = frozenset(
    {
        F.cross_entropy,
        F.nll_loss,
        F.one_hot,
        torch.gather,
        torch.scatter,
        torch.scatter_add,
        torch.scatter_reduce,
        torch.take_along_dim,
        Tensor.gather,
        Tensor.scatter,
        Tensor.scatter_,
        Tensor.scatter_add,
        Tensor.scatter_add_,
        Tensor.scatter_reduce,
        Tensor.scatter_reduce_,
    }
)

# Functions that make tensors; without a device they make them where the model runs.
_FACTORIES: dict[Callable, str] = {
    getattr(torch, name): name
    for name in (
        "arange empty full full_like linspace logspace normal ones rand randint randn randperm"
        " range tensor zeros zeros_like"
    ).split()
}
_SHOWN = frozenset({Tensor.__repr__, Tensor.__format__})


class FunctionRules(TorchFunctionMode):
    """Sees each torch function before it runs: marks losses, casts mixed operands."""

    def __init__(self, state: Recording):
        super().__init__()
        self.state = state

    def __torch_function__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        kwargs = kwargs or {}
        if not kwargs and recurrent_ops.is_recurrent(func, args):
            return recurrent_ops.record(func, args)
        if not kwargs and packed_sequences.is_packed_net(func, args):
            return packed_sequences.run_net(self.state, func, args)
        rule = RULES.get(func) or FORMS.get(func)
        if rule is not None:
            return rule(self.state, func, *args, **kwargs)
        if func in _SHOWN:
            return _without_values(args[0])
        if func in _FACTORIES and kwargs.get("device") is None:
            self._warn_about_device(func, args)
        if func in _PRODUCTS:
            args, kwargs = _in_the_type_of_the_activation(args, kwargs)
        elif func in _WANTS_LONG_INDICES:
            args, kwargs = tree_map(_as_long, (args, kwargs))
        result = (ctc_ops.record if func in ctc_ops.CTC_FUNCTIONS else func)(*args, **kwargs)
        if func in LOSS_FUNCTIONS and isinstance(result, Tensor):
            self.state.mark_loss(result)
        return result

    def _warn_about_device(self, func: Callable, args: tuple) -> None:
        of_tensors = func is torch.normal and any(isinstance(a, Tensor) for a in args)
        if self.state.warn is not None and not of_tensors:
            name = _FACTORIES[func]
            self.state.warn(f"No device set in torch.{name}(): forcing to IPU")


def _without_values(tensor: Tensor) -> str:
    """What printing a tensor shows while it has a shape and a type only."""
    return f"tensor(<unavailable>, size={list(tensor.shape)}, dtype={tensor.dtype})"


def _as_long(value: object) -> object:
    if isinstance(value, Tensor) and value.dtype is torch.int32:
        return value.long()
    return value


def _in_the_type_of_the_activation(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    halves = (torch.float16, torch.float32)
    first = args[0] if args else kwargs.get("input")
    if not isinstance(first, Tensor) or first.dtype not in halves:
        return args, kwargs

    def cast(value: object) -> object:
        if isinstance(value, Tensor) and value.dtype in halves and value.dtype != first.dtype:
            return value.to(first.dtype)
        return value

    return tuple(cast(a) for a in args), {name: cast(value) for name, value in kwargs.items()}

"""Calls whose shapes depend on values in PyTorch: refused, or given a static form."""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from tremula.ir.capture.dynamic_slices import get_item, set_item
from tremula.ir.capture.recording import Recording
from tremula.ir.errors import CaptureError
from tremula.ir.origin import model_line

Rule = Callable[..., object]  # (recording, func, *args, **kwargs)


def _refuse(state: Recording, what: str, hint: str) -> CaptureError:
    return CaptureError(what, source=model_line(state.source_excludes), hint=hint)


def _one_hot(state: Recording, _func: Callable, tensor: Tensor, num_classes: int = -1) -> Tensor:
    if isinstance(num_classes, Tensor) or num_classes < 0:
        raise _refuse(
            state,
            "OneHot num classes must be specified and must be constant.",
            "write one_hot(x, num_classes=n)",
        )
    classes = torch.arange(num_classes, device=tensor.device)
    return (tensor.unsqueeze(-1) == classes).to(torch.int64)


def _bincount(
    state: Recording,
    _func: Callable,
    input: Tensor,
    weights: Tensor | None = None,
    minlength: int = 0,
) -> Tensor:
    """The smallest length is also the largest: what lies beyond it has no bin."""
    if isinstance(minlength, Tensor) or minlength < 1:
        raise _refuse(
            state,
            "Bincount `minlength` must be specified and must be a constant. On the IPU MK2 platform"
            " the minimum length is also the maximum length",
            "write bincount(x, minlength=n)",
        )
    if weights is None:
        weights = torch.ones_like(input, dtype=torch.int64)
    bins = torch.zeros(minlength, dtype=weights.dtype, device=input.device)
    return bins.scatter_add(0, input.to(torch.int64), weights)


def _topk(state: Recording, func: Callable, *args: object, **kwargs: object) -> object:
    if not kwargs.get("sorted", args[4] if len(args) > 4 else True):
        raise _refuse(
            state,
            "topk(sorted=False) is not supported: the k largest elements always come sorted.",
            "leave sorted out",
        )
    return func(*args, **kwargs)


def _pooled_places(state: Recording, func: Callable, *_args: object, **_kwargs: object) -> object:
    name = func.__name__.removesuffix("_with_indices")
    raise _refuse(
        state,
        f"{name}(return_indices=True) is not supported: the places of maxima are no result of a"
        " pooling.",
        "leave return_indices out",
    )


def _narrow(
    _state: Recording, func: Callable, input: Tensor, dim: int, start: object, length: int
) -> object:
    if isinstance(start, Tensor) and getattr(start, "constant", None) is None:
        return torch.ops.tremula.dynamic_slice(input, start, dim, length)
    return func(input, dim, start, length)


def _as_array(state: Recording, func: Callable, tensor: Tensor, *args: object) -> object:
    if isinstance(tensor, FakeTensor):
        raise _refuse(
            state,
            f"Tensor.{func.__name__} is only supported in eager mode: the values of a tensor are"
            " not known while a model is recorded.",
            "use functions of torch instead of NumPy's, or poptorch.CPU for code of the host",
        )
    return func(tensor, *args)


RULES: dict[Callable, Rule] = {
    Tensor.numpy: _as_array,
    Tensor.__array__: _as_array,
    F.one_hot: _one_hot,
    torch.bincount: _bincount,
    Tensor.bincount: _bincount,
    torch.topk: _topk,
    Tensor.topk: _topk,
    torch.narrow: _narrow,
    Tensor.narrow: _narrow,
    Tensor.__getitem__: get_item,
    Tensor.__setitem__: set_item,
    **{
        getattr(F, name): _pooled_places
        for kind in ("max_pool", "adaptive_max_pool", "fractional_max_pool")
        for n in (1, 2, 3)
        if hasattr(F, name := f"{kind}{n}d_with_indices")
    },
}

"""`torch.autocast` while a model is recorded: products in halves, sensitive functions in float.

Fake tensors are on the CPU, whatever device a script names, so PyTorch's autocast of CPUs casts the
operands of products. It leaves softmax, norms and the like in the type they get; the lists of
GPUs, which scripts are written for, compute them in float32, and so does this file.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.amp.autocast_mode import autocast

from tremula.base.libraries.patching import wrapped
from tremula.ir.nodes import HALF_TYPES

_DEVICES = frozenset({"cpu", "cuda", "ipu"})  # other names are PyTorch's to reject
_is_enabled, _type_in_use = torch.is_autocast_enabled, torch.get_autocast_dtype

# Functions that PyTorch computes in float32 on a GPU under autocast.
_IN_FLOAT = (
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow __pow__"
    " __rpow__ softplus layer_norm group_norm norm cosine_similarity poisson_nll_loss"
    " cosine_embedding_loss nll_loss hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss"
    " mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss"
    " multi_margin_loss binary_cross_entropy_with_logits cross_entropy dist pdist cdist renorm"
    " logsumexp"
).split()
# These only if no type is passed.
_IN_FLOAT_BY_DEFAULT = "prod softmax log_softmax cumprod cumsum sum".split()


def _functions(names: Iterable[str]) -> frozenset[Callable]:
    owners = (torch, Tensor, F)
    return frozenset(getattr(o, name) for name in names for o in owners if hasattr(o, name))


_ALWAYS, _BY_DEFAULT = _functions(_IN_FLOAT), _functions(_IN_FLOAT_BY_DEFAULT)


def is_active() -> bool:
    """Whether the model is inside `torch.autocast`."""
    return _is_enabled("cpu")


def as_products(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments of a call, floats in the type of products."""
    dtype = _type_in_use("cpu")

    def cast(value: Any) -> Any:  # noqa: ANN401 - arguments as they are
        is_float = isinstance(value, Tensor) and value.dtype in (torch.float32, *HALF_TYPES)
        return value.to(dtype) if is_float else value

    return tuple(map(cast, args)), {name: cast(value) for name, value in kwargs.items()}


def in_float(func: Callable, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments of a call, halves as floats if the function is computed in float32."""
    if not is_active():
        return args, kwargs
    is_default = func in _BY_DEFAULT and kwargs.get("dtype") is None
    if not is_default and func not in _ALWAYS:
        return args, kwargs
    return tuple(map(_as_float, args)), {name: _as_float(v) for name, v in kwargs.items()}


def _as_float(value: Any) -> Any:  # noqa: ANN401 - arguments as they are
    return value.float() if isinstance(value, Tensor) and value.dtype in HALF_TYPES else value


@contextmanager
def autocast_of_any_device() -> Iterator[None]:
    """Inside, autocast of a GPU or an IPU is that of the fake tensors' device."""
    with ExitStack() as stack:
        stack.enter_context(wrapped(autocast, "__init__", _for_fakes))
        for name in ("is_autocast_enabled", "get_autocast_dtype"):
            stack.enter_context(wrapped(torch, name, _of_fakes))
        yield


def _for_fakes(make: Callable[..., None]) -> Callable[..., None]:
    def make_for_fakes(
        self: autocast, device_type: str, dtype: torch.dtype | None = None, *args, **kwargs
    ) -> None:
        if device_type in _DEVICES:
            if dtype is None:  # IPUs and GPUs have float16 by default
                dtype = torch.bfloat16 if device_type == "cpu" else torch.float16
            device_type = "cpu"
        make(self, device_type, dtype, *args, **kwargs)

    return make_for_fakes


def _of_fakes(ask: Callable[..., Any]) -> Callable[..., Any]:
    def ask_of_fakes(device_type: str = "cuda") -> Any:  # noqa: ANN401
        return ask("cpu" if device_type in _DEVICES else device_type)

    return ask_of_fakes

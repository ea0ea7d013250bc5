"""What calls of torch functions mean while a model is recorded: losses, factories, mixed types."""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from tremula.ir.capture import autocast, packed_sequences, sparse_tensors
from tremula.ir.capture.dynamic_slices import get_item, index_put, set_item
from tremula.ir.capture.losses import LOSS_FUNCTIONS
from tremula.ir.capture.without_values import (
    grouped_mm,
    istft,
    lstsq,
    repeat_interleave,
    tensor_split,
)
from tremula.ir.errors import CaptureError
from tremula.ir.ops import attention as attention_ops
from tremula.ir.ops import ctc as ctc_ops
from tremula.ir.ops import recurrent as recurrent_ops
from tremula.ir.ops.strided_norm import strided_group_norm
from tremula.ir.origin import model_line
from tremula.ir.recorder import DEVICE
from tremula.ir.recording import Recording

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
# Arguments that PyTorch wants as 64-bit integers, by name and place: the device has 32-bit ones
# only, so a script may give those.
_INDEX_ARGUMENTS: dict[str, tuple[str, int]] = {
    "gather": ("index", 2),
    "scatter": ("index", 2),
    "scatter_add": ("index", 2),
    "scatter_reduce": ("index", 2),
    "index_copy": ("index", 2),
    "index_fill": ("index", 2),
    "index_reduce": ("index", 2),
    "put": ("index", 1),
    "take": ("index", 1),
    "take_along_dim": ("indices", 1),
}
_WANTS_LONG_INDICES: dict[Callable, tuple[str, int]] = {
    F.cross_entropy: ("target", 1),
    F.nll_loss: ("target", 1),
    F.multi_margin_loss: ("target", 1),
    F.multilabel_margin_loss: ("target", 1),
    **{
        getattr(owner, name + mark): argument
        for name, argument in _INDEX_ARGUMENTS.items()
        for owner in (torch, Tensor)
        for mark in ("", "_")
        if hasattr(owner, name + mark)
    },
}

# Functions that make tensors; without a device they make them where the model runs.
_FACTORIES: dict[Callable, str] = {
    getattr(torch, name): name
    for name in (
        "arange empty full full_like linspace logspace normal ones rand randint randn randperm"
        " range tensor zeros zeros_like"
    ).split()
}
_LIKE_ANOTHER = frozenset({Tensor.to, Tensor.type_as})  # they take type and device of a tensor
_HOST = torch.device("cpu")
_SHOWN = frozenset({Tensor.__repr__, Tensor.__format__})


class FunctionRules(TorchFunctionMode):
    """Sees each torch function before it runs: marks losses, casts mixed operands."""

    def __init__(self, state: Recording):
        super().__init__()
        self.state = state

    def __torch_function__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        args, kwargs = self._on_the_device(func, args, kwargs or {})
        args, kwargs = autocast.in_float(func, args, kwargs)
        if sparse_tensors.meets_dense(args, kwargs):
            return sparse_tensors.run(self.state, func, args, kwargs)
        if not kwargs and recurrent_ops.is_recurrent(func, args):
            return recurrent_ops.record(func, args)
        if not kwargs and packed_sequences.is_packed_net(func, args):
            return packed_sequences.run_net(self.state, func, args)
        if func in _WANTS_LONG_INDICES:
            args, kwargs = _with_long_indices(args, kwargs, *_WANTS_LONG_INDICES[func])
        rule = RULES.get(func) or FORMS.get(func) or _OF_OTHERS.get(_operator_name(func))
        if rule is not None:
            return rule(self.state, func, *args, **kwargs)
        if func in _SHOWN:
            return _without_values(args[0])
        if func in _FACTORIES and kwargs.get("device") is None:
            self._warn_about_device(func, args)
        if func in _PRODUCTS:
            args, kwargs = _in_the_type_of_the_activation(args, kwargs)
        result = (ctc_ops.record if func in ctc_ops.CTC_FUNCTIONS else func)(*args, **kwargs)
        if func in LOSS_FUNCTIONS and isinstance(result, Tensor):
            self.state.mark_loss(result)
        return result

    def _on_the_device(self, func: Callable, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """The device of the model is where its fakes are; tensors sent there become constants."""
        of_call = (*args, *kwargs.values())
        goes_there = any(_is_device(value) for value in of_call) or (
            func in _LIKE_ANOTHER and any(isinstance(value, FakeTensor) for value in of_call)
        )
        if not goes_there:
            return args, kwargs
        bring_in = self.state.recorder.bring_in

        def there(value: object) -> object:
            if isinstance(value, Tensor):
                return bring_in(value)
            return _HOST if _is_device(value) else value

        return tuple(there(a) for a in args), {name: there(v) for name, v in kwargs.items()}

    def _warn_about_device(self, func: Callable, args: tuple) -> None:
        of_tensors = func is torch.normal and any(isinstance(a, Tensor) for a in args)
        if self.state.warn is not None and not of_tensors:
            name = _FACTORIES[func]
            self.state.warn(f"No device set in torch.{name}(): forcing to IPU")


def _is_device(value: object) -> bool:
    """Whether an argument is the device of the model: torch.device("ipu"), "ipu:0"."""
    if isinstance(value, str):
        return value.partition(":")[0] == DEVICE.type
    return isinstance(value, torch.device) and value.type == DEVICE.type


def _without_values(tensor: Tensor) -> str:
    """What printing shows of a tensor that has only a shape and a type."""
    return f"tensor(<unavailable>, size={list(tensor.shape)}, dtype={tensor.dtype})"


def _with_long_indices(args: tuple, kwargs: dict, name: str, place: int) -> tuple[tuple, dict]:
    """The call with one argument cast: a cast of what it writes would write a copy."""
    if name in kwargs:
        return args, {**kwargs, name: _as_long(kwargs[name])}
    new_args = [_as_long(value) if i == place else value for i, value in enumerate(args)]
    return tuple(new_args), kwargs


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

    named = {name: value if name == "out" else cast(value) for name, value in kwargs.items()}
    return tuple(cast(a) for a in args), named


# -- functions recorded in another form: PyTorch's look at values ----------------------------------


def _rrelu(
    _state: Recording, _func: Callable, x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3,
    training: bool = False, inplace: bool = False,
) -> Tensor:  # fmt: skip
    """The slope below zero is drawn per element in training, and else the middle one."""
    slope = torch.empty_like(x).uniform_(lower, upper) if training else (lower + upper) / 2
    result = torch.where(x >= 0, x, x * slope)
    return x.copy_(result) if inplace else result


def _gaussian_nll_loss(
    state: Recording, _func: Callable, x: Tensor, target: Tensor, var: Tensor | float,
    full: bool = False, eps: float = 1e-6, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Without PyTorch's check of the variances: a negative one counts as `eps`."""
    variances = var if isinstance(var, Tensor) else torch.full_like(x, var)
    if variances.dim() == x.dim() - 1:  # one for each row
        variances = variances.unsqueeze(-1)
    variances = variances + (variances.clamp(min=eps) - variances).detach()
    loss = 0.5 * (variances.log() + (x - target) ** 2 / variances)
    if full:
        loss = loss + 0.9189385332046727  # half the logarithm of 2π
    loss = loss if reduction == "none" else getattr(loss, reduction)()
    state.mark_loss(loss)
    return loss


def _embedding_bag(  # noqa: PLR0913, PLR0917 - as PyTorch
    _state: Recording, _func: Callable, rows: Tensor, table: Tensor,
    offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,  # noqa: ARG001
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """A lookup, then a reduction over each bag."""
    result = F.embedding(rows, table, padding_idx, max_norm, norm_type, scale_grad_by_freq)
    is_counted = torch.ones_like(rows, dtype=torch.bool)
    if padding_idx is not None:
        is_counted = rows != padding_idx % len(table)
    if per_sample_weights is not None:
        result = result * per_sample_weights.unsqueeze(-1)
    if offsets is None:
        return _of_equal_bags(result, is_counted, mode)
    offsets = offsets[:-1] if include_last_offset else offsets
    places = torch.arange(len(rows), device=rows.device)
    bags = (offsets.unsqueeze(0) <= places.unsqueeze(1)).sum(1) - 1
    return _of_bags(result, is_counted, bags, len(offsets), mode)


def _of_equal_bags(result: Tensor, is_counted: Tensor, mode: str) -> Tensor:
    mask = is_counted.unsqueeze(-1)
    if mode == "max":
        most = torch.where(mask, result, -torch.inf).amax(1)
        return torch.where(mask.any(1), most, 0)
    total = torch.where(mask, result, 0).sum(1)
    return total if mode == "sum" else total / mask.sum(1).clamp(min=1)


def _of_bags(result: Tensor, is_counted: Tensor, bags: Tensor, n: int, mode: str) -> Tensor:
    mask, zeros = is_counted.unsqueeze(-1), result.new_zeros(n, result.shape[1])
    if mode == "max":
        places = bags.unsqueeze(1).expand(result.shape)
        most = torch.where(mask, result, -torch.inf)
        most = zeros.scatter_reduce(0, places, most, "amax", include_self=False)
        return torch.where(most == -torch.inf, 0, most)
    total = zeros.index_add(0, bags, torch.where(mask, result, 0))
    if mode == "sum":
        return total
    counts = result.new_zeros(n).index_add(0, bags, is_counted.to(result.dtype))
    return total / counts.clamp(min=1).unsqueeze(1)


def _index_fill(
    _state: Recording, func: Callable, x: Tensor, dim: int | str, index: Tensor, value: object
) -> Tensor:
    """A tensor as value is chosen by a mask: PyTorch's gradient of it looks for equal indices."""
    if not isinstance(value, Tensor) or not value.requires_grad:
        return func(x, dim, index, value)
    is_filled = torch.zeros_like(x, dtype=torch.bool).index_fill(dim, index, True)  # pyright: ignore[reportArgumentType, reportCallIssue]
    result = torch.where(is_filled, value.to(x.dtype), x)
    return x.copy_(result) if func is Tensor.index_fill_ else result


def _cov(
    _state: Recording, _func: Callable, input: Tensor, *, correction: int = 1,
    fweights: Tensor | None = None, aweights: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Without PyTorch's checks of the weights' values."""
    rows = input.reshape(1, -1) if input.dim() < 2 else input
    rows = rows if rows.dtype.is_floating_point or rows.dtype.is_complex else rows.float()
    weights = fweights
    if aweights is not None:
        weights = aweights if weights is None else aweights * weights
    if weights is None:
        total: Tensor | int = rows.shape[1]
        mean, count = rows.sum(1, keepdim=True) / total, total - correction
    else:
        total = weights.sum()
        mean = (rows * weights).sum(1, keepdim=True) / total
        lost: Tensor | int = correction
        if aweights is not None and correction:
            lost = correction * (weights * aweights).sum() / total
        count = total - lost
    spread = rows - mean
    weighted = spread if weights is None else spread * weights
    result = weighted @ spread.mT.conj()
    least = count.clamp(min=0) if isinstance(count, Tensor) else max(count, 0)
    return (result / least).squeeze()


def _histc(
    _state: Recording, func: Callable, input: Tensor, *how: object, **named: object
) -> Tensor:
    """Of whole numbers, which PyTorch has on GPUs only: counted as floats."""
    if input.dtype.is_floating_point:
        return func(input, *how, **named)
    return func(input.float(), *how, **named).to(input.dtype)


def _as_tensor(_state: Recording, func: Callable, data: object, **how: object) -> Tensor:
    """Numbers become a constant of the recording; as_tensor itself would bypass the recording."""
    make: Callable[..., Tensor] = func if isinstance(data, Tensor) else torch.tensor
    return make(data, **how)


def _batch_norm(
    _state: Recording, func: Callable, x: Tensor, mean: Tensor | None, var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None, *args: object, **kwargs: object,
) -> Tensor:  # fmt: skip
    """Statistics of halves may be floats; weights then are, too, as PyTorch wants them."""
    if mean is not None and x.dtype is torch.float16:
        weight, bias = (t if t is None else t.to(mean.dtype) for t in (weight, bias))
    return func(x, mean, var, weight, bias, *args, **kwargs)


def _group_norm(
    state: Recording, func: Callable, input: Tensor, num_groups: int, weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5, *args: object, **kwargs: object,
) -> Tensor:  # fmt: skip
    """A session may group strided channels: group g has channels g, g + num_groups, …"""
    n_channels = input.shape[1]
    if not state.strides_group_norms or num_groups in (1, n_channels):
        return func(input, num_groups, weight, bias, eps, *args, **kwargs)
    return strided_group_norm(input, num_groups, weight, bias, eps)


def _attention(  # noqa: PLR0917 - as PyTorch
    _state: Recording, func: Callable, query: Tensor, key: Tensor, value: Tensor,
    attn_mask: Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    operands: tuple = (query, key, value, attn_mask)
    if autocast.is_active():
        operands, _ = autocast.as_products(operands, {})
    return attention_ops.record(
        func, *operands, dropout_p=dropout_p, is_causal=is_causal, scale=scale,
        enable_gqa=enable_gqa,
    )  # fmt: skip


def _is_ipu(_state: Recording, func: Callable, tensor: Tensor) -> bool:
    return isinstance(tensor, FakeTensor) or func(tensor)


def _is_cpu(_state: Recording, func: Callable, tensor: Tensor) -> bool:
    return not isinstance(tensor, FakeTensor) and func(tensor)


FORMS: dict[Callable, Callable[..., object]] = {
    getattr(Tensor, "is_ipu").__get__: _is_ipu,  # noqa: B009 - a property of tensors
    getattr(Tensor, "is_cpu").__get__: _is_cpu,  # noqa: B009
    torch.as_tensor: _as_tensor,
    F.rrelu: _rrelu,
    F.batch_norm: _batch_norm,
    F.group_norm: _group_norm,
    F.scaled_dot_product_attention: _attention,
    torch.group_norm: _group_norm,
    F.gaussian_nll_loss: _gaussian_nll_loss,
    F.embedding_bag: _embedding_bag,
    torch.index_fill: _index_fill,
    Tensor.index_fill: _index_fill,
    Tensor.index_fill_: _index_fill,
    **{
        getattr(owner, name): grouped_mm
        for owner, name in ((torch, "_grouped_mm"), (F, "grouped_mm"))
        if hasattr(owner, name)
    },
    torch.histc: _histc,
    Tensor.histc: _histc,
    torch.cov: _cov,
    Tensor.cov: _cov,
    torch._VF._pack_padded_sequence: packed_sequences.pack,  # pyright: ignore[reportAttributeAccessIssue]
    torch._VF._pad_packed_sequence: packed_sequences.pad,  # pyright: ignore[reportAttributeAccessIssue]
}


# By the names that their libraries gave them: nothing of those is imported here.
_OF_OTHERS: dict[str, Callable[..., object]] = {"transformers::grouped_mm_fallback": grouped_mm}


def _operator_name(func: Callable) -> str:
    return getattr(func, "_qualified_op_name", "")


# -- calls whose shapes depend on values in PyTorch: refused, or static ----------------------------


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
    """The minimum length is also the maximum: values beyond it have no bin."""
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
    torch.index_put: index_put,
    torch.index_put_: index_put,
    Tensor.index_put: index_put,
    Tensor.index_put_: index_put,
    torch.repeat_interleave: repeat_interleave,
    Tensor.repeat_interleave: repeat_interleave,
    torch.tensor_split: tensor_split,
    Tensor.tensor_split: tensor_split,
    torch.istft: istft,
    Tensor.istft: istft,
    torch.linalg.lstsq: lstsq,
}

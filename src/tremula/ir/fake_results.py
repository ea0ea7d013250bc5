"""Results of calls with fake tensors, repeated without PyTorch's dispatch.

What a call gives depends on shapes, strides and types only. PyTorch's fake tensors remember that,
too, but describe arguments and results in more detail than a recording needs: a repeated call
takes several times as long as making its result. A call is repeated here if it is an operation of
ATen that gives one tensor, new or a view, of fake tensors whose values are unknown.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

_CPU = torch.device("cpu")
_NEW, _VIEW = "new", "view"
_WITHOUT_KEY = Tensor, torch.SymInt, torch.SymFloat, torch.SymBool
_SELECT = torch.ops.aten.select.int
_LIMIT = 100_000  # calls that are remembered
_SPECIAL = {
    torch.Tag.data_dependent_output,
    torch.Tag.dynamic_output_shape,
    torch.Tag.inplace_view,
}


@dataclass(frozen=True, slots=True)
class _Description:
    """What is needed to make a tensor: one with separate memory, or a view of another."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    offset: int  # in the memory

    def make(self, mode: FakeTensorMode, base: Tensor | None) -> Tensor:
        with torch._C._DisableTorchDispatch():
            if base is None:
                plain = torch.empty_strided(
                    self.shape, self.strides, dtype=self.dtype, device="meta"
                )
            else:
                plain = torch.empty(0, dtype=self.dtype, device="meta")
                plain.set_(base.untyped_storage(), self.offset, self.shape, self.strides)
            return FakeTensor(mode, plain, _CPU)


class _NotRepeatable(Exception):
    """An argument whose description does not determine the result."""


_known: dict[tuple[object, ...], _Description | None] = {}


def call_with_fakes(
    func: OpOverload, mode: FakeTensorMode, args: tuple, kwargs: dict[str, Any]
) -> Any:  # noqa: ANN401
    """`func(*args, **kwargs)`, where `mode` is the innermost mode in force."""
    gives = _what_it_gives(func)
    if gives is None or torch.is_inference_mode_enabled():
        return func(*args, **kwargs)
    try:
        key = (func, torch.get_default_dtype(), _key(args, mode), _key(tuple(kwargs.items()), mode))
        known = _known.get(key)
    except (_NotRepeatable, TypeError):  # TypeError: an argument that cannot be hashed
        return func(*args, **kwargs)
    base = args[0] if gives == _VIEW else None
    if known is None and func is _SELECT:
        known = _selected(*args) if len(args) == 3 and not kwargs else None
    if known is not None:
        return known.make(mode, base)
    result = func(*args, **kwargs)
    if key not in _known and len(_known) < _LIMIT:
        _known[key] = _description(result, mode, base, (*args, *kwargs.values()))
    return result


def _selected(base: Tensor, dim: int, index: int) -> _Description | None:
    """`base.select(dim, index)`: an update picks other elements for each weight."""
    shape, strides = tuple(base.shape), base.stride()
    if not -len(shape) <= dim < len(shape) or not -shape[dim] <= index < shape[dim]:
        return None
    dim %= len(shape)
    offset = int(base.storage_offset()) + index % shape[dim] * strides[dim]
    rest = shape[:dim] + shape[dim + 1 :], strides[:dim] + strides[dim + 1 :]
    return _Description(*rest, base.dtype, offset)


def new_fake_like(tensor: Tensor) -> Tensor | None:
    """A contiguous fake tensor of unknown value again; None of any other tensor."""
    is_contiguous = is_plain_fake(tensor) and tensor.is_contiguous()
    return new_fake_with_strides(tensor) if is_contiguous else None


def new_fake_with_strides(tensor: Tensor) -> Tensor:
    """A fake tensor with the shape, strides and type of another, and separate memory."""
    assert isinstance(tensor, FakeTensor), "only fakes are repeated"
    place = tensor.stride(), tensor.dtype, 0
    return _Description(tuple(tensor.shape), *place).make(tensor.fake_mode, None)


def is_plain_fake(tensor: object) -> TypeGuard[FakeTensor]:
    """Whether a tensor is no more than a fake of elements with unknown values."""
    return type(tensor) is FakeTensor and _is_plain(tensor)


@cache
def _what_it_gives(func: OpOverload) -> str | None:
    """A single tensor with separate memory, a view of the first argument, or something else."""
    schema = func._schema
    if (
        (func.namespace != "aten" and schema.name != "tremula::gradient")
        or schema.is_mutable
        or _SPECIAL & set(func.tags)
        or len(schema.returns) != 1
        or str(schema.returns[0].type) != "Tensor"
    ):
        return None
    aliased = [place for place, a in enumerate(schema.arguments) if a.alias_info is not None]
    if schema.returns[0].alias_info is None:
        return None if aliased else _NEW
    is_first = aliased == [0] and str(schema.arguments[0].type) == "Tensor"
    return _VIEW if is_first and not schema.arguments[0].kwarg_only else None


def _key(value: object, mode: FakeTensorMode) -> object:
    """An argument as far as a result depends on it; numbers with their types, as 1 == 1.0."""
    if type(value) is FakeTensor:
        return _key_of_tensor(value, mode)
    if type(value) is tuple or type(value) is list:
        return tuple([_key(part, mode) for part in value])
    if isinstance(value, _WITHOUT_KEY):
        raise _NotRepeatable
    return type(value), value


def _key_of_tensor(tensor: FakeTensor, mode: FakeTensorMode) -> object:
    if tensor.fake_mode is not mode or not _is_plain(tensor):
        raise _NotRepeatable
    place = tensor.stride(), tensor.storage_offset()
    return tensor.dtype, tuple(tensor.shape), *place, tensor.requires_grad


def _is_plain(tensor: FakeTensor) -> bool:
    """Whether a tensor is no more than elements of unknown value in the host's memory."""
    return (
        tensor.constant is None
        and tensor.layout is torch.strided
        and tensor.fake_device == _CPU
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def _description(
    result: object, mode: FakeTensorMode, base: Tensor | None, arguments: tuple[object, ...]
) -> _Description | None:
    """How to make such a result; None if it is an argument, or has more than elements."""
    if type(result) is not FakeTensor or result.fake_mode is not mode or not _is_plain(result):
        return None
    tensors = _tensors(arguments)
    has_numbers = all(type(n) is int for n in (*result.shape, *result.stride()))
    if result.requires_grad or not has_numbers or any(result is tensor for tensor in tensors):
        return None
    if base is None:
        has_own_memory = storage_of(result) not in set(map(storage_of, tensors))
        is_as_promised = has_own_memory and result.storage_offset() == 0
    else:
        is_as_promised = storage_of(result) == storage_of(base)
    return _description_of(result) if is_as_promised else None


def _description_of(tensor: Tensor) -> _Description:
    place = tensor.stride(), tensor.dtype, int(tensor.storage_offset())
    return _Description(tuple(tensor.shape), *place)


def storage_of(tensor: Tensor) -> int:
    """A number that tensors in the same memory share, also fake ones, which have no address."""
    return tensor.untyped_storage()._cdata


def _tensors(values: tuple[object, ...] | list[object]) -> list[Tensor]:
    result: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            result.append(value)
        elif type(value) is tuple or type(value) is list:
            result += _tensors(value)
    return result

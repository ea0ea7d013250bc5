"""Results of calls with fake tensors, repeated without PyTorch's dispatch.

Results of a call depend on shapes, strides and types only. PyTorch's fake tensors remember that,
too, but describe arguments and results in more detail than a recording needs: a repeated call
takes several times as long as making its result. A call is repeated here if it is an operation of
ATen, or one of `_OURS`, of fake tensors whose values are unknown, that gives new tensors, views of
its first argument, or this argument after writing it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

_CPU, _META = torch.device("cpu"), torch.device("meta")
_NEW, _VIEW, _WRITTEN = "new", "view", "written"
_WITHOUT_KEY = Tensor, torch.SymInt, torch.SymFloat, torch.SymBool
_SELECT = torch.ops.aten.select.int
_UNSAFE_VIEW = torch.ops.aten._unsafe_view.default  # its schema does not say that it is a view
_OURS = frozenset({"tremula::gradient", "tremula::attention", "tremula::attention_backward"})
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
                    self.shape, self.strides, dtype=self.dtype, device=_META
                )
            else:
                plain = torch.empty(0, dtype=self.dtype, device=_META)
                plain.set_(base.untyped_storage(), self.offset, self.shape, self.strides)
            return _fake_of(plain, mode)


@dataclass(frozen=True, slots=True)
class _Results:
    """The results of a call that returns several tensors, or None in place of some."""

    parts: tuple[_Description | None, ...]
    kind: type[tuple | list]

    def make(self, mode: FakeTensorMode, base: Tensor | None) -> Sequence[Tensor | None]:
        return self.kind([None if part is None else part.make(mode, base) for part in self.parts])


class _FirstArgument:
    """The result of a call that writes its first argument and returns it."""

    def make(self, _mode: FakeTensorMode, base: Tensor | None) -> Tensor | None:
        return base


_Gives = _Description | _Results | _FirstArgument


def _fake_of(plain: Tensor, mode: FakeTensorMode) -> Tensor:
    """`FakeTensor(mode, plain, _CPU)` in a third of its time, most of which sets attributes."""
    attributes = mode.__dict__.get(_ATTRIBUTES)
    if attributes is None:
        fake = FakeTensor(mode, plain, _CPU)
        mode.__dict__[_ATTRIBUTES] = dict(fake.__dict__)
        return fake
    fake = Tensor._make_subclass(
        FakeTensor, plain, False, dispatch_device=True, device_for_backend_keys=_CPU
    )
    if mode._allow_unsafe_data_ptr_access:
        torch._C._set_warn_deprecated_on_mutable_data_ptr(fake)
    else:
        torch._C._set_throw_on_mutable_data_ptr(fake)
    fake.__dict__.update(attributes)  # pyright: ignore[reportAttributeAccessIssue] - an object, not its class
    return fake


_ATTRIBUTES = "_tremula_attributes"  # of a mode: those of each of its fakes


class _NotRepeatable(Exception):
    """An argument whose description does not determine the result."""


_known: dict[tuple[object, ...], _Gives | None] = {}


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
    base = None if gives == _NEW else args[0]
    if known is None and func is _SELECT:
        known = _selected(*args) if len(args) == 3 and not kwargs else None
    if known is not None:
        return known.make(mode, base)
    if key in _known or len(_known) >= _LIMIT:
        return func(*args, **kwargs)
    result = _call_once(func, mode, args, kwargs)
    if gives == _WRITTEN:
        _known[key] = _FirstArgument() if result is base else None
    else:
        _known[key] = _description(result, mode, base, (*args, *kwargs.values()))
    return result


def _call_once(func: OpOverload, mode: FakeTensorMode, args: tuple, kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
    """The call, without PyTorch remembering it: its description takes longer than most calls."""
    before, mode.cache_enabled = mode.cache_enabled, False
    try:
        return func(*args, **kwargs)
    finally:
        mode.cache_enabled = before


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


def new_contiguous_fake(tensor: FakeTensor) -> Tensor:
    """A contiguous fake tensor with the shape and type of another, and separate memory."""
    with torch._C._DisableTorchDispatch():
        plain = torch.empty(tensor.shape, dtype=tensor.dtype, device=_META)
        return _fake_of(plain, tensor.fake_mode)


def is_plain_fake(tensor: object) -> TypeGuard[FakeTensor]:
    """Whether a tensor is no more than a fake of elements with unknown values."""
    return type(tensor) is FakeTensor and _is_plain(tensor)


@cache
def _what_it_gives(func: OpOverload) -> str | None:
    """New tensors, views of the first argument, this argument itself, or something else."""
    schema = func._schema
    if func is _UNSAFE_VIEW:
        return _VIEW
    if (func.namespace != "aten" and schema.name not in _OURS) or _SPECIAL & set(func.tags):
        return None
    arguments = schema.arguments
    aliased = [place for place, a in enumerate(arguments) if a.alias_info is not None]
    if not schema.returns or not all(str(r.type) in _TENSORS for r in schema.returns):
        return None
    if all(r.alias_info is None for r in schema.returns):
        return None if aliased else _NEW
    is_first = aliased == [0] and str(arguments[0].type) == "Tensor" and not arguments[0].kwarg_only
    if not is_first or len(schema.returns) > 1:
        return None
    return _WRITTEN if schema.is_mutable else _VIEW


_TENSORS = frozenset({"Tensor", "List[Tensor]"})


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
) -> _Description | _Results | None:
    """How to make such a result; None if it is an argument, or has more than elements."""
    tensors = _tensors(arguments)
    if type(result) is not tuple and type(result) is not list:
        return _description_of_one(result, mode, base, tensors)
    parts: list[_Description | None] = []
    for part in result:
        one = None if part is None else _description_of_one(part, mode, base, tensors)
        if part is not None and one is None:
            return None
        parts.append(one)
        tensors += [part] if base is None and part is not None else []
    return _Results(tuple(parts), type(result))


def _description_of_one(
    result: object, mode: FakeTensorMode, base: Tensor | None, tensors: list[Tensor]
) -> _Description | None:
    """How to make a result that is none of these tensors; a new one shares memory with none."""
    if type(result) is not FakeTensor or result.fake_mode is not mode or not _is_plain(result):
        return None
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

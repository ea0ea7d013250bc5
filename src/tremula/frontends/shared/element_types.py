"""The element types that front ends know: one table, and how arrays become tensors and back.

PyTorch and tiles compute little with unsigned integers, and nothing with some small types. So each
type has a *carrier*, the PyTorch type that computations hold it in:

    type              carrier        how
    uint16            int32          its values; results are cut to 16 bits (`in_range`)
    uint32, uint64    int32, int64   its bits: sums, products and logic are the same; what sees an
                                     order or a size takes `ordered`
    int4, float6, …   int8, float32  its values
    others            their own type

`value_type` is for a front end that wants all values as they are (uint32 in int64), `torch_type`
is PyTorch's own type, which can store elements even where PyTorch cannot compute with them.
"""

import importlib.util
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class ElementType:
    """One element type, by NumPy's name for it."""

    name: str
    numpy_type: np.dtype
    torch_type: torch.dtype | None  # PyTorch's own; None where it has none
    carrier: torch.dtype
    n_bits: int
    value_type: torch.dtype | None = None  # has all values; None where only the carrier's bits do

    @cached_property
    def is_floating(self) -> bool:
        return self.carrier.is_floating_point

    @cached_property
    def is_wrapped(self) -> bool:
        """Whether it is unsigned and its carrier signed, with the same bits."""
        return self.numpy_type.kind == "u" and self.n_bits == 8 * self.carrier.itemsize > 8

    @cached_property
    def is_masked(self) -> bool:
        """Whether results must be cut to its bits: its carrier is wider."""
        return (
            self.numpy_type.kind == "u"
            and self.carrier is not self.torch_type
            and not self.is_wrapped
        )

    @cached_property
    def is_common(self) -> bool:
        """Whether every framework has it: no 8-bit float, and nothing of fewer bits."""
        return self.n_bits >= 8 and "float8" not in self.name

    @cached_property
    def narrowed(self) -> "ElementType":
        """The type that a machine without 64-bit elements has instead of this one, or itself."""
        numpy_type = _NARROWED.get(self.numpy_type)
        return self if numpy_type is None else _BY_NUMPY[numpy_type]

    @cached_property
    def is_shared(self) -> bool:
        """Whether PyTorch reads arrays of it in place, and computes with them."""
        return self.carrier is self.torch_type and self.numpy_type.isbuiltin == 1

    @cached_property
    def is_narrow(self) -> bool:
        """Whether it has fewer than 8 bits, and so is stored in a wider type, too."""
        return self.n_bits < 8


def _rows() -> list[ElementType]:
    rows = [_plain(name) for name in _PLAIN.split()]
    rows += [
        ElementType("uint16", np.dtype(np.uint16), torch.uint16, torch.int32, 16, torch.int32),
        ElementType("uint32", np.dtype(np.uint32), torch.uint32, torch.int32, 32, torch.int64),
        ElementType("uint64", np.dtype(np.uint64), torch.uint64, torch.int64, 64),
    ]
    if importlib.util.find_spec("ml_dtypes"):  # comes with JAX and ONNX
        rows += _small_rows()
    return rows


_PLAIN = """
bool int8 int16 int32 int64 uint8 float16 float32 float64 complex64 complex128
"""


def _plain(name: str) -> ElementType:
    numpy, own = np.dtype(name), getattr(torch, name)
    return ElementType(name, numpy, own, own, 8 * numpy.itemsize, own)


def _small_rows() -> list[ElementType]:
    import ml_dtypes

    shared = "bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"
    rows = []
    for name in shared.split():
        numpy, own = np.dtype(getattr(ml_dtypes, name)), getattr(torch, name)
        rows.append(ElementType(name, numpy, own, own, 8 * numpy.itemsize, own))
    for name, n_bits, carrier in (
        ("uint4", 4, torch.uint8), ("int4", 4, torch.int8),
        ("uint2", 2, torch.uint8), ("int2", 2, torch.int8),
        ("float4_e2m1fn", 4, torch.float32),
        ("float6_e2m3fn", 6, torch.float32), ("float6_e3m2fn", 6, torch.float32),
    ):  # fmt: skip
        numpy = np.dtype(getattr(ml_dtypes, name))
        rows.append(ElementType(name, numpy, None, carrier, n_bits, carrier))
    return rows


ELEMENT_TYPES: dict[str, ElementType] = {row.name: row for row in _rows()}
_BY_NUMPY = {row.numpy_type: row for row in ELEMENT_TYPES.values()}
_BY_TORCH = {row.torch_type: row for row in ELEMENT_TYPES.values() if row.torch_type is not None}


_NARROWED = {
    np.dtype(wide): np.dtype(narrow)
    for wide, narrow in (
        (np.int64, np.int32), (np.uint64, np.uint32), (np.float64, np.float32),
        (np.complex128, np.complex64),
    )
}  # fmt: skip


def of_numpy(dtype: np.dtype | type | str) -> ElementType | None:
    """The row of a NumPy type, if there is one."""
    return _BY_NUMPY.get(np.dtype(dtype))


def of_torch(dtype: torch.dtype) -> ElementType | None:
    """The row whose own type in PyTorch this is."""
    return _BY_TORCH.get(dtype)


# -- arrays and tensors ----------------------------------------------------------------------------


def to_tensor(array: np.ndarray, holder: torch.dtype) -> Tensor:
    """An array's elements in a PyTorch type: the same bits in integers of their size, else values.

    Memory is shared where types allow and PyTorch may write it.
    """
    array, own = np.asarray(array), _BY_TORCH[holder].numpy_type
    if array.dtype != own:
        array = array.view(own) if _have_same_bits(array.dtype, own) else array.astype(own)
    if own.isbuiltin == 1:
        return torch.from_numpy(_in_one_piece(array))
    bits = _in_one_piece(array).view(f"i{own.itemsize}")
    return torch.from_numpy(bits).view(holder)


def to_array(tensor: Tensor, type: ElementType) -> np.ndarray:
    """The array of a type that a tensor holds; the inverse of `to_tensor` for any holder."""
    tensor = tensor.detach().cpu()
    if type.torch_type is not None and type.numpy_type.isbuiltin != 1:  # tiles hold wider ones
        bits = torch.int8 if type.n_bits == 8 else torch.int16
        return tensor.to(type.torch_type).contiguous().view(bits).numpy().view(type.numpy_type)
    array = tensor.numpy()
    if _have_same_bits(array.dtype, type.numpy_type):
        return array.view(type.numpy_type)
    return array.astype(type.numpy_type, copy=False)


def _have_same_bits(a: np.dtype, b: np.dtype) -> bool:
    """Whether both are integers of one size, signed or not."""
    return a.kind in "iu" and b.kind in "iu" and a.itemsize == b.itemsize


def _in_one_piece(array: np.ndarray) -> np.ndarray:
    """Memory that PyTorch may hold: contiguous and writeable."""
    return array if array.flags.writeable and array.flags.c_contiguous else array.copy(order="C")


# -- carriers --------------------------------------------------------------------------------------


def to_carrier(array: np.ndarray, type: ElementType) -> Tensor:
    """An array as the tensor that is computed with."""
    return to_tensor(array, type.carrier)


def from_carrier(tensor: Tensor, type: ElementType) -> np.ndarray:
    """The array of a tensor that was computed with."""
    return to_array(tensor, type)


def in_range(tensor: Tensor, type: ElementType) -> Tensor:
    """What is left of an integer result in a type that is narrower than the tensor's."""
    is_wider = tensor.dtype.itemsize * 8 > type.n_bits
    if type.numpy_type.kind == "u" and is_wider and not tensor.is_floating_point():
        return tensor & ((1 << type.n_bits) - 1)
    return tensor


def ordered(tensor: Tensor, type: ElementType) -> Tensor:
    """Signed integers in the order of the unsigned ones whose bits they have; its own inverse."""
    return tensor ^ torch.iinfo(tensor.dtype).min if type.is_wrapped else tensor

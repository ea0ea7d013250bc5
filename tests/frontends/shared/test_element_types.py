"""Element types of all front ends: one table, and conversions that lose nothing."""

import math
import operator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tremula.frontends.shared.element_types import (
    ELEMENT_TYPES,
    from_carrier,
    in_range,
    of_numpy,
    of_torch,
    ordered,
    to_array,
    to_carrier,
    to_tensor,
)

ALL = list(ELEMENT_TYPES.values())
UNSIGNED = [ELEMENT_TYPES[name] for name in ("uint16", "uint32", "uint64")]
by_name = pytest.mark.parametrize("row", ALL, ids=lambda row: row.name)
unsigned = pytest.mark.parametrize("row", UNSIGNED, ids=lambda row: row.name)


def _bits(array):
    return np.ascontiguousarray(array).view(np.uint8).tolist()


def _array(data, row, shape=(6, 5)):
    """Arbitrary elements of a type: any bits, or any value of a type narrower than its bytes."""
    n_bytes = row.numpy_type.itemsize
    n_codes = math.prod(shape) * n_bytes
    codes = np.frombuffer(data.draw(st.binary(min_size=n_codes, max_size=n_codes)), np.uint8)
    codes = codes.reshape(*shape, n_bytes)
    if row.name == "bool":
        return codes[..., 0] > 127
    if row.is_narrow:
        if row.is_floating:
            return (codes[..., 0].astype(np.float32) / 16 - 8).astype(row.numpy_type)
        low = -(1 << row.n_bits - 1) if row.name.startswith("int") else 0
        return (codes[..., 0].astype(np.int16) % (1 << row.n_bits) + low).astype(row.numpy_type)
    return codes.view(row.numpy_type)[..., 0]


@by_name
@given(data=st.data())
def test_carriers_keep_every_element(row, data):
    """An array that becomes its carrier and comes back has the same bits, NaNs included."""
    array = _array(data, row)
    tensor = to_carrier(array, row)
    assert tensor.dtype is row.carrier
    back = from_carrier(tensor, row)
    assert back.dtype == row.numpy_type
    assert _bits(back) == _bits(array)


@by_name
@given(data=st.data())
def test_other_holders_keep_every_element(row, data):
    """So do PyTorch's own type and the type that has all values."""
    array = _array(data, row)
    for holder in {row.torch_type, row.value_type} - {None}:
        tensor = to_tensor(array, holder)
        assert tensor.dtype is holder
        assert _bits(to_array(tensor, row)) == _bits(array)


@by_name
def test_views_and_read_only_arrays(row):
    """Arrays that PyTorch may not hold are copied: transposed, strided or read-only ones."""
    whole = np.arange(24).reshape(4, 6).astype(row.numpy_type)
    for array in (whole.T, whole[::2, ::3], whole[0, 0], whole[:0]):
        array = np.asarray(array)
        array.flags.writeable = False
        assert _bits(from_carrier(to_carrier(array, row), row)) == _bits(array)


@by_name
def test_scalars(row):
    """A scalar of NumPy becomes a tensor without dimensions."""
    scalar = row.numpy_type.type(1)
    assert to_carrier(scalar, row).shape == ()
    assert from_carrier(to_carrier(scalar, row), row) == scalar


def test_plain_memory_is_shared():
    """A type that PyTorch has needs no copy."""
    array = np.zeros(3, np.float32)
    to_carrier(array, ELEMENT_TYPES["float32"])[1] = 5
    assert array[1] == 5


@unsigned
@given(data=st.data())
def test_unsigned_arithmetic_in_carriers(row, data):
    """Sums, products and differences of carriers, cut to the range, are those of NumPy."""
    a, b = _array(data, row), _array(data, row)
    with np.errstate(over="ignore"):
        for operation in (operator.add, operator.sub, operator.mul):
            carried = operation(to_carrier(a, row), to_carrier(b, row))
            result = from_carrier(in_range(carried, row), row)
            np.testing.assert_array_equal(result, operation(a, b))


@unsigned
@given(data=st.data())
def test_order_of_unsigned_integers(row, data):
    """`ordered` carriers compare as the unsigned integers do; twice is none."""
    a, b = _array(data, row), _array(data, row)
    first, second = (ordered(to_carrier(x, row), row) for x in (a, b))
    np.testing.assert_array_equal((first < second).numpy(), a < b)
    np.testing.assert_array_equal(from_carrier(ordered(first, row), row), a)


def test_lookups():
    """Rows by NumPy's and PyTorch's types; types that no front end knows have none."""
    for row in ALL:
        assert of_numpy(row.numpy_type) is row
        assert row.torch_type is None or of_torch(row.torch_type) is row
    assert of_numpy(np.dtype("datetime64[s]")) is None
    assert of_torch(torch.qint8) is None
    assert [row.name for row in ALL if row.is_wrapped] == ["uint32", "uint64"]
    assert [row.name for row in ALL if row.is_masked] == ["uint16"]


def test_front_ends_read_the_table():
    """PopXL's, JAX's, ONNX's and PopART's types are rows: the carriers of equal names agree."""
    import popxl
    from tremula.frontends.jax.carriers import carrier
    from tremula.frontends.onnx.element_types import NUMPY_TYPES as onnx_types
    from tremula.frontends.popart.tensor_info import NUMPY_TYPES as popart_types

    for name in ("bool", "int8", "int32", "uint8", "uint16", "uint64", "float16", "complex64"):
        row = ELEMENT_TYPES[name]
        assert carrier(row.numpy_type) is row.carrier
        assert getattr(popxl, name).carrier is row.carrier
        assert onnx_types[name.upper()] == popart_types[name.upper()] == row.numpy_type


def test_common_and_shared_types() -> None:
    """Frameworks have no small types in common; PyTorch reads what it computes with in place."""
    common = {name for name, row in ELEMENT_TYPES.items() if row.is_common}
    assert {"bool", "uint64", "bfloat16", "complex128"} <= common
    assert not common & {"float8_e4m3fn", "int4", "float6_e2m3fn"}
    shared = {name for name, row in ELEMENT_TYPES.items() if row.is_shared}
    assert {"bool", "int8", "uint8", "float16", "complex64"} <= shared
    assert not shared & {"uint16", "uint32", "uint64", "bfloat16", "int4"}

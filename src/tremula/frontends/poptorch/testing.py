"""Comparison of results, for tests of PopTorch models."""

import torch


def allclose(
    ref_data: object,
    other_data: object,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> bool:
    """Whether two tensors, or two tuples or lists of them, are equal up to rounding."""
    assert isinstance(other_data, type(ref_data)), (
        f"expected {type(ref_data)} as in the reference, got {type(other_data)}"
    )
    if isinstance(ref_data, torch.Tensor) and isinstance(other_data, torch.Tensor):
        return torch.allclose(ref_data, other_data, rtol, atol, equal_nan)
    assert isinstance(ref_data, tuple | list), (
        f"expected tensors or tuples and lists of them, got {type(ref_data)}"
    )
    assert isinstance(other_data, tuple | list), f"expected {type(ref_data)}, got {other_data!r}"
    assert len(ref_data) == len(other_data), (
        f"expected {len(ref_data)} items as in the reference, got {len(other_data)}"
    )
    pairs = zip(ref_data, other_data, strict=True)
    return all(allclose(ref, other, rtol, atol, equal_nan) for ref, other in pairs)

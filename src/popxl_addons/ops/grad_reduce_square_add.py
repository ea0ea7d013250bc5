"""Norms of gradients."""

from tremula.frontends.popxl_addons.ops.norms import (
    grad_reduce_square_add,
)

__all__ = [
    "grad_reduce_square_add",
]

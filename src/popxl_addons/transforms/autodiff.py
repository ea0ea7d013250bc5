"""Gradients."""

from tremula.frontends.popxl_addons.transforms.autodiff import (
    autodiff,
    autodiff_with_accumulation,
    recompute_graph,
    recomputed,
)

__all__ = [
    "autodiff",
    "autodiff_with_accumulation",
    "recompute_graph",
    "recomputed",
]

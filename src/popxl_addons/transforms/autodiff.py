"""Gradients of graphs with names.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.transforms.autodiff import (
    autodiff,
    autodiff_with_accumulation,
    recomputed,
    remap_grad_info,
)

__all__ = [
    "autodiff",
    "autodiff_with_accumulation",
    "recomputed",
    "remap_grad_info",
]

"""Gradients that compute the forward graph again.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.transforms.recomputation import (
    add_recompute_inputs,
    recompute_graph,
)

__all__ = [
    "add_recompute_inputs",
    "recompute_graph",
]

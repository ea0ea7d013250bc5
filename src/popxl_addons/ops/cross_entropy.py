"""Cross entropy, with and without its gradient.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.ops.losses import (
    cross_entropy,
    cross_entropy_with_grad,
)

__all__ = [
    "cross_entropy",
    "cross_entropy_with_grad",
]

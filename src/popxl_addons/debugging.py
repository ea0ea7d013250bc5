"""Printing tensors while a program runs.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.debugging import (
    print_tensor,
    print_text,
)

__all__ = [
    "print_tensor",
    "print_text",
]

"""Rows of a table.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.layers.embedding import (
    Embedding,
)

__all__ = [
    "Embedding",
]

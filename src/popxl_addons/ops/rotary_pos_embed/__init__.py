"""Rotary position embeddings.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from .rotary_pos_embed import (
    rotary_pos_embed,
    trig_table_constants,
    trig_tables,
)

__all__ = [
    "rotary_pos_embed",
    "trig_table_constants",
    "trig_tables",
]

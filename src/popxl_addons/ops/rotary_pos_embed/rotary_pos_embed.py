"""Rotary position embeddings.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.ops.rotary import (
    rotary_pos_embed,
    trig_table_constants,
    trig_tables,
)

__all__ = [
    "rotary_pos_embed",
    "trig_table_constants",
    "trig_tables",
]

"""Rotary position embeddings."""

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

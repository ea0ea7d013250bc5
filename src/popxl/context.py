"""popxl.context: what is open while graphs are built."""

from tremula.frontends.popxl.core.context import (
    gcg,
    get_current_graph,
    get_main_graph,
    gir,
    gmg,
    io_tiles,
    ipu,
    name_scope,
    pipeline_stage,
)
from tremula.frontends.popxl.core.order import in_sequence

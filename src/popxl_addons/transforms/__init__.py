"""Transforms of graphs.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from . import (
    repeat_graph,
)
from .autodiff import (
    autodiff,
    autodiff_with_accumulation,
    recomputed,
)
from .available_memory_proportion import (
    set_available_memory_proportion_by_ipu,
    set_graph_available_memory_proportion_by_ipu,
)
from .batch_serialisation import (
    RemoteHandle,
    batch_serial_buffer,
    batch_serialise,
    batch_serialise_fwd_and_grad,
)
from .pipelining import (
    pipelined_execution,
)
from .recomputation import (
    recompute_graph,
)
from .use_fc_pass import (
    disable_fc_pass,
    enable_fc_pass,
)

__all__ = [
    "RemoteHandle",
    "autodiff",
    "autodiff_with_accumulation",
    "available_memory_proportion",
    "batch_serial_buffer",
    "batch_serialisation",
    "batch_serialise",
    "batch_serialise_fwd_and_grad",
    "disable_fc_pass",
    "enable_fc_pass",
    "pipelined_execution",
    "pipelining",
    "recomputation",
    "recompute_graph",
    "recomputed",
    "repeat_graph",
    "set_available_memory_proportion_by_ipu",
    "set_graph_available_memory_proportion_by_ipu",
    "use_fc_pass",
]

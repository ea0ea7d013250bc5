"""Transforms of graphs."""

from tremula.frontends.popxl_addons.transforms.autodiff import (
    autodiff,
    autodiff_with_accumulation,
    recompute_graph,
    recomputed,
)
from tremula.frontends.popxl_addons.transforms.batch_serialisation import (
    BatchSerialResult,
    RemoteHandle,
    batch_serial_buffer,
    batch_serialise,
    batch_serialise_fwd_and_grad,
)
from tremula.frontends.popxl_addons.transforms.pipelining import (
    pipelined_execution,
)
from tremula.frontends.popxl_addons.transforms.repeat_graph import (
    repeat_graph,
)

__all__ = [
    "BatchSerialResult",
    "RemoteHandle",
    "autodiff",
    "autodiff_with_accumulation",
    "batch_serial_buffer",
    "batch_serialise",
    "batch_serialise_fwd_and_grad",
    "pipelined_execution",
    "recompute_graph",
    "recomputed",
    "repeat_graph",
]

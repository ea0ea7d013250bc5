"""Loops over micro-batches.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.transforms.batch_serialisation import (
    BatchSerialResult,
    RemoteHandle,
    batch_serial_buffer,
    batch_serialise,
    batch_serialise_fwd_and_grad,
    batch_serialise_non_overlapped,
    batch_serialise_overlapped,
)
from tremula.frontends.popxl_addons.utils import (
    null_context,
)

__all__ = [
    "BatchSerialResult",
    "RemoteHandle",
    "batch_serial_buffer",
    "batch_serialise",
    "batch_serialise_fwd_and_grad",
    "batch_serialise_non_overlapped",
    "batch_serialise_overlapped",
    "null_context",
]

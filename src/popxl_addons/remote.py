"""Named remote buffers.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.remote import (
    NamedRemoteBuffers,
    create_remote_buffer,
    load_remote,
    load_remote_graph,
    named_buffers,
    named_variable_buffers,
    store_remote,
    store_remote_graph,
)

__all__ = [
    "NamedRemoteBuffers",
    "create_remote_buffer",
    "load_remote",
    "load_remote_graph",
    "named_buffers",
    "named_variable_buffers",
    "store_remote",
    "store_remote_graph",
]

"""popxl.remote_buffer: remote memory."""

from tremula.frontends.popxl.core.remote_buffer import (
    RemoteBuffer,
    remote_buffer,
    replica_sharded_buffer,
)

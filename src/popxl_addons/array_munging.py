"""Host arrays cut and repeated for replicas."""

from tremula.frontends.popxl_addons.array_munging import (
    repeat_axis,
    shard,
    shard2D,
    tensor_parallel_input,
)

__all__ = [
    "repeat_axis",
    "shard",
    "shard2D",
    "tensor_parallel_input",
]

"""Remote buffers: memory beside the chips, in entries of one shape and type."""

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

from tremula.frontends.popxl.core.context import gir
from tremula.frontends.popxl.core.tensor import Tensor
from tremula.frontends.popxl.dtypes import dtype
from tremula.frontends.popxl.replica_grouping import ReplicaGrouping


class RemoteBuffer:
    """Entries of one shape and type in remote memory, with a number from 1 on."""

    def __init__(
        self,
        tensor_shape: Sequence[int],
        tensor_dtype: dtype,
        entries: int = 1,
        meta_shape: Sequence[int] = (),
        n_shards: int = 1,
    ):
        self._ir = gir()
        self._ir.check_open()
        self.meta_shape = tuple(meta_shape)
        self.n_shards = n_shards  # replicas that hold one tensor together
        self.set_remote_buffer_info(tensor_dtype, tuple(tensor_shape), entries)
        self._ir.remote_buffers.append(self)
        self._id = len(self._ir.remote_buffers)

    def set_remote_buffer_info(
        self, tensor_dtype: dtype, tensor_shape: Sequence[int], entries: int
    ) -> None:
        """Choose what an entry is, and how many there are."""
        self._dtype, self._shape = tensor_dtype, tuple(int(n) for n in tensor_shape)
        self.entries = entries

    @property
    def meta_shape(self) -> tuple[int, ...]:
        """The shape of the whole tensors whose shards the entries are; () for others."""
        return self._meta_shape

    @meta_shape.setter
    def meta_shape(self, shape: Sequence[int]) -> None:
        self._meta_shape = tuple(int(n) for n in shape)

    @property
    def remote_buffer_id(self) -> int:
        return self._id

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def tensor_dtype(self) -> dtype:
        return self._dtype

    @property
    def ir(self) -> Any:
        return self._ir

    @property
    def _current_ir(self) -> Any:
        return self._ir._pb_ir

    @property
    def entries(self) -> int:
        """How many tensors fit."""
        return self._entries

    @entries.setter
    def entries(self, value: int) -> None:
        if value < 1:
            raise ValueError(f"Entries must be a non-zero, positive integer. Got {value}")
        self._entries = int(value)

    @property
    def n_bytes(self) -> int:
        """Bytes of all entries, for one replica."""
        return self._entries * prod(self._shape) * self._dtype.n_bytes

    def validate_tensor_matches_buffer(self, t: Tensor, num_shards: int = 1) -> None:
        """Raise unless a tensor has the type and shape of an entry; if sharded, of the whole."""
        expected = self._shape if num_shards == 1 else self.meta_shape
        if t.shape != expected:
            raise ValueError(
                "Tensor does not match buffer."
                f" The tensor shape {t.shape} does not match the buffer shape {expected}"
            )
        if t.dtype != self._dtype:
            raise ValueError(
                "Tensor does not match buffer."
                f" The tensor dtype {t.dtype!r} does not match the buffer dtype {self._dtype!r}"
            )

    def check_offset(self, offset: int) -> None:
        if not 0 <= offset < self._entries:
            raise ValueError(
                f"Offset {offset} is out of range for remote buffer {self._id}"
                f" with {self._entries} entries"
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RemoteBuffer):
            return NotImplemented
        return self is other

    def __hash__(self) -> int:
        return hash((id(self._ir), self._id))

    def __repr__(self) -> str:
        return f"RemoteBuffer[{self._id}: {self._entries} × {self._dtype!r} {self._shape}]"


def remote_buffer(
    tensor_shape: Sequence[int], tensor_dtype: dtype, entries: int = 1
) -> RemoteBuffer:
    """Remote memory for `entries` tensors of a shape and type."""
    return RemoteBuffer(tensor_shape, tensor_dtype, entries)


def replica_sharded_buffer(
    shape: Sequence[int],
    dtype: dtype,
    replica_grouping: ReplicaGrouping | None = None,
    shard_over: int | None = None,
    entries: int = 1,
) -> RemoteBuffer:
    """Remote memory for shards of tensors: 1-D, one part of `shard_over` each.

    The shape is that of the variable's data: with several groups of replicas, they come first.
    """
    n = shard_size(gir(), replica_grouping, shard_over)
    has_groups = replica_grouping is not None and replica_grouping.num_groups > 1
    whole = tuple(shape)[1:] if has_groups else tuple(shape)
    return RemoteBuffer((ceil(prod(whole) / n),), dtype, entries, whole, n)


def shard_size(ir: Any, replica_grouping: ReplicaGrouping | None, shard_over: int | None) -> int:
    """Over how many replicas a tensor is sharded: all of its group, or as many as requested."""
    if not isinstance(replica_grouping, ReplicaGrouping | None):
        raise TypeError(f"Expected a group of ir.replica_grouping, got {replica_grouping!r}")
    size = ir.replication_factor if replica_grouping is None else replica_grouping.group_size
    if shard_over is None:
        return size
    if shard_over < 1 or size % shard_over:
        raise ValueError(
            f"shard_over ({shard_over}) must divide the size of the replica group ({size})"
        )
    return shard_over

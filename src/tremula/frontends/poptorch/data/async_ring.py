"""The ring of shared memory in which a loading process leaves batches for its parent."""

import mmap
import os
import pickle
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tremula.frontends.poptorch.exceptions import createPoptorchError

__all__ = [
    "BatchRing",
    "RingLayout",
    "TensorLayout",
    "make_ring",
    "open_ring",
    "ring_layout",
    "send",
]

# A cache line: no two slots share one, and every dtype is aligned.
ALIGNMENT = 64
SHARED_MEMORY_FOLDER = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """The position of one tensor of a batch in its slot."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class RingLayout:
    """The layout of the memory: one flag per slot, then the slots, all alike."""

    n_slots: int
    slot_n_bytes: int
    tensors: tuple[TensorLayout, ...]

    @property
    def flags_n_bytes(self) -> int:
        return _aligned(self.n_slots)

    @property
    def n_bytes(self) -> int:
        return self.flags_n_bytes + self.n_slots * self.slot_n_bytes


class BatchRing:
    """Both processes' view of the memory: `slots[i]` holds the tensors of one batch.

    `indices_mem[i]` is True while slot i holds a batch that was not handed out. The flags only
    show how full the ring is; messages decide who may touch a slot, and they also order the memory
    accesses of the two processes.
    """

    def __init__(self, layout: RingLayout, memory: mmap.mmap):
        everything = torch.frombuffer(memory, dtype=torch.uint8)
        self.layout = layout
        self.indices_mem = np.frombuffer(memory, bool, layout.n_slots)
        slots = everything[layout.flags_n_bytes : layout.n_bytes].view(layout.n_slots, -1)
        self.slots = [[_placed(slot, tensor) for tensor in layout.tensors] for slot in slots]

    def write(self, slot: int, tensors: Sequence[torch.Tensor], first_row: int) -> None:
        """Copy a batch, or a part of one, into a slot, from a row on."""
        for place, tensor in zip(self.slots[slot], tensors, strict=True):
            target = place[first_row : first_row + len(tensor)] if tensor.ndim else place
            target.copy_(tensor)

    def read(self, slot: int, n_rows: Sequence[int] | None) -> list[torch.Tensor]:
        """The tensors of a slot: views, not copies. `n_rows`: how much of each is filled."""
        if n_rows is None:
            return list(self.slots[slot])
        filled = zip(self.slots[slot], n_rows, strict=True)
        return [place[:n] if place.ndim else place for place, n in filled]


def ring_layout(first: Sequence[torch.Tensor], n_slots: int, n_rows: int | None) -> RingLayout:
    """The layout for batches like the first one; `n_rows` overrides the length of dimension 0."""
    tensors: list[TensorLayout] = []
    end = 0
    for tensor in first:
        shape = tuple(tensor.shape) if n_rows is None else (n_rows, *tensor.shape[1:])
        n_bytes = int(torch.Size(shape).numel()) * tensor.element_size()
        tensors.append(TensorLayout(shape, tensor.dtype, end, n_bytes))
        end = _aligned(end + n_bytes)
    return RingLayout(n_slots, max(end, ALIGNMENT), tuple(tensors))


def make_ring(layout: RingLayout, in_file_system: bool) -> tuple[BatchRing, Path]:
    """Make the memory and a file through which another process may map it; the caller removes it.

    Shared memory is a file in the kernel's folder for it, where there is one: no
    process has to watch over it, and once the file is removed it vanishes with the last process.
    """
    has_folder = SHARED_MEMORY_FOLDER.is_dir() and not in_file_system
    folder = SHARED_MEMORY_FOLDER if has_folder else Path(tempfile.gettempdir())
    descriptor, name = tempfile.mkstemp(prefix="tremula-ring-", dir=folder)
    path = Path(name)
    try:
        _reserve(descriptor, layout, folder)
        return BatchRing(layout, mmap.mmap(descriptor, layout.n_bytes)), path
    except BaseException:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


def open_ring(layout: RingLayout, path: Path) -> BatchRing:
    """Map the memory that the parent made."""
    with path.open("r+b") as file:
        return BatchRing(layout, mmap.mmap(file.fileno(), layout.n_bytes))


def send(connection: Connection, message: tuple[Any, ...]) -> None:
    """Send a message without tensors. `connection.send` would prepare for tensors each time."""
    connection.send_bytes(pickle.dumps(message))


def _reserve(descriptor: int, layout: RingLayout, folder: Path) -> None:
    """Claim the bytes now: a full folder is an error here, and a bus error when written to."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, layout.n_bytes)
        else:
            os.ftruncate(descriptor, layout.n_bytes)
    except OSError as error:
        raise createPoptorchError(
            f"AsynchronousDataAccessor needs {layout.n_bytes:,} bytes for {layout.n_slots} "
            f"batches, and {folder} does not have them ({error.strerror}). Try a smaller "
            "buffer_size, SharingStrategy.FileSystem, or more shared memory."
        ) from error


def _placed(slot: torch.Tensor, tensor: TensorLayout) -> torch.Tensor:
    n_bytes = slot[tensor.offset : tensor.offset + tensor.n_bytes]
    return n_bytes.view(tensor.dtype).view(tensor.shape)


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT

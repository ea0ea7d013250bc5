"""Kernels whose arguments are all tensors, stored so that a later process needs no Triton.

Importing Triton, and looking up a kernel in its cache, takes a good part of a start that compiles
nothing. The first process launches through Triton and stores the cubin; the next one loads it.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from tremula.ir.host.compiled.functions import CannotStoreError
from tremula.ir.host.compiled.kernels import GpuKernel, Launch
from tremula.ir.host.compiled.keys import digest, surroundings
from tremula.ir.host.compiled.store import (
    binary_path,
    forget_record,
    read_record,
    store_bytes,
    write_record,
)
from tremula.ir.host.graph_kernels.kernels import compiled_text

_ALIGNMENT = 16  # bytes: Triton compiles another kernel for addresses that are no multiple
_SCRATCH = ("global_scratch_size", "profile_scratch_size")  # each is a pointer after the arguments
_GRID = "def launcher(n_programs, *args, stream):\n    runner(n_programs, 1, 1, stream, *args)\n"
_log = logging.getLogger("tremula.gpu")


@dataclass(frozen=True)
class TensorKernel:
    """A text with its compile-time constants and number of warps."""

    text: str
    constants: tuple[tuple[str, int], ...]
    n_warps: int

    def run(self, n_programs: int, args: Sequence[Tensor]) -> None:
        """Launch the stored kernel, or what Triton compiles, which is then stored."""
        kinds = tuple((str(arg.dtype), arg.data_ptr() % _ALIGNMENT == 0) for arg in args)
        form = _form(self, kinds, args[0].device)
        if form.stored is not None:
            stream = torch.cuda.current_stream(args[0].device).cuda_stream
            form.stored.run(n_programs, *args, stream=stream)
            return
        function = compiled_text(self.text)
        made = function[n_programs,](*args, **dict(self.constants), num_warps=self.n_warps)
        if not form.is_written:
            form.is_written = True
            _store(form.key, made, len(args))


@dataclass
class _Form:
    """A kernel for some types and alignments of its arguments."""

    key: str
    stored: GpuKernel | None
    is_written: bool = False


@cache
def _form(kernel: TensorKernel, kinds: tuple, device: torch.device) -> _Form:
    about = [kernel.text, repr((kernel.constants, kernel.n_warps, kinds))]
    key = digest(["tensor kernel", *surroundings(device), *about])
    return _Form(key, _loaded(key, device))


def _loaded(key: str, device: torch.device) -> GpuKernel | None:
    content = read_record(key)
    if content is None:
        return None
    try:
        launch = Launch(**{**content, "mutated": ()})
        index = device.index if device.index is not None else torch.cuda.current_device()
        return GpuKernel([launch], [binary_path(launch.binary)], index)
    except Exception as error:  # noqa: BLE001 - whatever it is, Triton compiles it again
        forget_record(key, str(error))
        return None


def _store(key: str, made: object, n_args: int) -> None:
    try:
        write_record(key, asdict(launch_of(made, n_args)))
    except Exception as error:  # noqa: BLE001 - what Triton returns differs between versions
        _log.info("a kernel is not stored: %s: %s", type(error).__name__, error)


def launch_of(made: Any, n_args: int) -> Launch:  # noqa: ANN401 - Triton's own type
    """What launches a kernel that Triton compiled; its cubin is stored."""
    metadata = made.metadata
    scratch = [name for name in _SCRATCH if hasattr(metadata, name)]
    if any(getattr(metadata, name) for name in scratch):
        raise CannotStoreError("it needs memory for intermediate values")
    if getattr(metadata, "num_ctas", 1) != 1:
        raise CannotStoreError("its programs are clusters")
    binary = store_bytes(made.asm["cubin"], ".cubin")
    name, n_warps, n_shared = metadata.name, metadata.num_warps, metadata.shared
    return Launch(binary, name, n_warps, n_shared, "O" * n_args, len(scratch), _GRID)

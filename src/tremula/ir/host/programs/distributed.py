"""Replicas in several processes: gradients are summed over all of them before the update."""

import atexit
import os

import torch
import torch.distributed as dist
from torch import Tensor

from tremula.base.tracing import POPDIST, span
from tremula.ir.errors import CaptureError

_FLAT_BYTES = 1 << 25  # small gradients are sent together, up to this many bytes at a time


def join_processes(n_processes: int, device: torch.device) -> None:
    """Make sure all processes of the run are connected."""
    if n_processes == 1:
        return
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # generated kernels are launched on the current one
    if not dist.is_initialized():
        has_gpu = device.type == "cuda" and not share_gpus()
        join_process_group("nccl" if has_gpu else "gloo")
    if dist.get_world_size() != n_processes:
        raise CaptureError(
            f"the options say {n_processes} processes, torch.distributed has"
            f" {dist.get_world_size()}.",
            hint="start the script with `tremula launch --nproc N script.py`",
        )


def share_gpus() -> bool:
    """Whether processes of this computer share GPUs: NCCL needs one for each."""
    n_local = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return n_local.isdecimal() and int(n_local) > torch.cuda.device_count()


def join_process_group(backend: str, **options: object) -> None:
    """Connect to the other processes, and disconnect before the interpreter ends.

    Otherwise PyTorch's threads are still alive at shutdown, which can abort the process.
    """
    with span(POPDIST, "init"):
        dist.init_process_group(backend, **options)  # pyright: ignore[reportArgumentType]
    atexit.register(leave_process_group)


def leave_process_group() -> None:
    """Disconnect from the other processes, if not done yet."""
    if dist.is_initialized():
        dist.destroy_process_group()


def sum_over_processes(gradients: list[Tensor]) -> list[Tensor]:
    """The sum of each gradient over all processes, in the same order everywhere."""
    results: list[Tensor] = [torch.empty(0)] * len(gradients)
    for group in _groups(gradients):
        flat = torch.cat([gradients[i].reshape(-1) for i in group])
        with span(POPDIST, "sum gradients", n_elements=flat.numel()):
            dist.all_reduce(flat)
        parts = flat.split([gradients[i].numel() for i in group])
        for i, part in zip(group, parts, strict=True):
            results[i] = part.view(gradients[i].shape)
    return results


def _groups(gradients: list[Tensor]) -> list[list[int]]:
    """Neighbours of one type that fit into one message."""
    groups: list[list[int]] = []
    n_bytes = 0
    for i, gradient in enumerate(gradients):
        size = gradient.numel() * gradient.element_size()
        fits = groups and gradients[groups[-1][0]].dtype == gradient.dtype
        if not fits or n_bytes + size > _FLAT_BYTES:
            groups.append([])
            n_bytes = 0
        groups[-1].append(i)
        n_bytes += size
    return groups

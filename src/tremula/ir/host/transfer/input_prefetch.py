"""Inputs of the next call, on their way to the GPU while this one runs.

A loader that has its next batch ready says which tensor follows which (`announce`). When a call has
been launched, what follows its inputs is copied to memory beside theirs, on a stream of its own;
the next call, if it is given just these tensors, fetches them from there. Anything else goes the
usual way, so a wrong guess costs a transfer and nothing more. A tensor that PyTorch has changed
meanwhile is transferred again; changes through NumPy after a loader gave a batch away are not
noticed.
"""

import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_N_KNOWN = 256  # pairs that are remembered
_following: OrderedDict[int, tuple[weakref.ref[Tensor], weakref.ref[Tensor]]] = OrderedDict()


def announce(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Each of these tensors will be followed by the other one."""
    for tensor, following in pairs:
        _following[tensor.data_ptr()] = weakref.ref(tensor), weakref.ref(following)
    while len(_following) > _N_KNOWN:
        _following.popitem(last=False)


def follower(tensor: Tensor) -> Tensor | None:
    """What follows the tensor that lies here, in its shape; None if that is not known."""
    current, following = (ref() for ref in _following.get(tensor.data_ptr(), (_none, _none)))
    if current is None or following is None or following.numel() != tensor.numel():
        return None
    is_plain = tensor.is_contiguous() and following.is_contiguous()
    return following.view(tensor.shape) if is_plain and following.dtype == tensor.dtype else None


def _none() -> None:
    return None


@dataclass(frozen=True)
class _Fetched:
    source: Tensor  # kept, so that its memory is not used for anything else
    version: int  # how often PyTorch had written it
    copy: Tensor
    is_there: torch.cuda.Event


class Ahead:
    """Copies of what the next call is expected to be given."""

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._buffers: dict[int, Tensor] = {}
        self._fetched: dict[int, _Fetched] = {}
        self.n_taken = 0

    def fetch(self, inputs: Sequence[Tensor | None], copied: torch.cuda.Event) -> None:
        """Start to copy what follows these inputs, once they have been copied themselves."""
        self._fetched = {}
        self._stream.wait_event(copied)
        for index, tensor in enumerate(inputs):
            source = follower(tensor) if tensor is not None else None
            if source is None or not source.is_pinned() or source.is_inference():
                continue
            copy = self._buffers.get(index)
            if copy is None or copy.shape != source.shape or copy.dtype != source.dtype:
                copy = torch.empty(source.shape, dtype=source.dtype, device=self._device)
                self._buffers[index] = copy
            is_there = torch.cuda.Event()
            with torch.cuda.stream(self._stream):
                copy.copy_(source, non_blocking=True)
                is_there.record()
            self._fetched[index] = _Fetched(source, source._version, copy, is_there)

    def take(self, place: int, tensor: Tensor) -> Tensor | None:
        """The copy of an input, if it was fetched."""
        fetched = self._fetched.get(place)
        if fetched is None or fetched.source.data_ptr() != tensor.data_ptr():
            return None
        is_changed = tensor.is_inference() or tensor._version != fetched.version
        if is_changed or tensor.shape != fetched.source.shape:
            return None
        torch.cuda.current_stream(self._device).wait_event(fetched.is_there)
        self.n_taken += 1
        return fetched.copy

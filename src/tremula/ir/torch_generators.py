"""PyTorch's generator of a device, read and set directly.

While PyTorch's compiler traces, it replaces `torch.cuda.set_rng_state` for the whole process by a
function that does nothing. A model that runs meanwhile in another thread would draw from a state
that it has not set, so states are set through generators themselves.
"""

import torch
from torch import Tensor


def random_state(device: torch.device) -> Tensor:
    """The state of a device's generator, as a tensor of bytes."""
    return _generator(device).get_state()


def set_random_state(device: torch.device, state: Tensor) -> None:
    """Continue a device's generator from a state."""
    _generator(device).set_state(state)


def _generator(device: torch.device) -> torch.Generator:
    if device.type == "cpu":
        return torch.default_generator
    torch.cuda.init()  # makes the generators
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]

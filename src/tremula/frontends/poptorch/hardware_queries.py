"""What scripts ask about the machine they run on: there is a model of one, never the real thing."""

import torch

from tremula.ir import recording


def isRunningOnIpu() -> bool:  # noqa: N802
    """Whether this code runs as part of a model that is being compiled."""
    return recording.active() is not None


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:  # noqa: N802, ARG001
    """Whether real hardware is here: no, models run on this computer."""
    return False


def ipuHardwareVersion() -> int:  # noqa: N802
    """The version of the real hardware; there is none to have one."""
    raise AssertionError("ipuHardwareVersion() needs IPU hardware, and there is none here")


def getIpuTensorId(tensor: torch.Tensor) -> int:  # noqa: N802
    """A number that stands for a tensor of the model that is being compiled."""
    assert isinstance(tensor, torch.Tensor), f"expected a tensor, got {tensor!r}"
    assert isRunningOnIpu(), "getIpuTensorId works inside forward while a model is compiled only"
    return id(tensor)

"""How models run on this computer: backend, device, when the tile program is compiled."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from tremula.base.context_values import ContextSetting
from tremula.base.errors import InvalidOption, suggest

if TYPE_CHECKING:  # settings can be chosen before PyTorch is loaded
    import torch

_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"  # how PyTorch looks for GPUs
_CHOICES = {
    "host": ("auto", "eager", "inductor", "cuda-graph", "inductor-cuda-graph"),
    "device": ("auto", "cpu", "cuda"),
    "tiles": ("lazy", "ahead", "run"),
    "chip": (),
    "reproducible": (False, True),
}


@dataclass(frozen=True)
class HostSettings:
    """Choices that a model script need not know about.

    host: how the step runs ("auto": eager on a CPU, the fastest kind of CUDA graph on a GPU).
    device: where ("auto": a GPU if there is one).
    tiles: "lazy" compiles the tile program when something asks for it, "ahead" together with the
    model, "run" computes every result with it.
    chip: the machine the tile program is for.
    reproducible: random numbers of host and tiles are the same for the same seed.
    """

    host: str = "auto"
    device: str = "auto"
    tiles: str = "lazy"
    chip: str = "bow"
    reproducible: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            allowed, value = _CHOICES[field.name], getattr(self, field.name)
            if allowed and value not in allowed:
                raise InvalidOption(
                    f"{field.name} = {value!r} is not one of {', '.join(map(str, allowed))}.",
                    hint=suggest(str(value), [str(a) for a in allowed]),
                )

    def torch_device(self) -> "torch.device":
        import torch

        if self.device == "auto":
            return own_gpu() if sees_gpu() else torch.device("cpu")
        if self.device == "cuda" and sees_gpu():
            return own_gpu()
        if self.device == "cuda":
            raise InvalidOption(
                "device = 'cuda', but PyTorch sees no GPU.", hint="use device='cpu' or 'auto'"
            )
        return torch.device(self.device)

    def backend(self) -> str:
        """The backend "auto" stands for."""
        if self.host != "auto":
            return self.host
        return "cuda-graph" if self.torch_device().type == "cuda" else "eager"


def sees_gpu() -> bool:
    """Whether there is a GPU, without using its driver: a process that has cannot be forked."""
    import torch

    if torch.cuda.is_initialized():
        return True
    before = os.environ.get(_CHECK)
    os.environ[_CHECK] = "1"
    try:
        return torch.cuda.is_available()
    finally:
        if before is None:
            del os.environ[_CHECK]
        else:
            os.environ[_CHECK] = before


def own_gpu() -> "torch.device":
    """The GPU of this process: that of its number among the processes of this computer."""
    import torch

    n_gpus, rank = torch.cuda.device_count(), os.environ.get("LOCAL_RANK", "")
    is_one_of_several = rank.isdecimal() and n_gpus > 1
    return torch.device("cuda", int(rank) % n_gpus) if is_one_of_several else torch.device("cuda")


def _from_environment() -> HostSettings:
    """TREMULA_HOST, TREMULA_DEVICE, TREMULA_TILES, TREMULA_CHIP, TREMULA_REPRODUCIBLE."""
    values = {}
    for field in fields(HostSettings):
        text = os.environ.get(f"TREMULA_{field.name.upper()}")
        if text:
            values[field.name] = (
                text not in ("0", "false") if field.name == "reproducible" else text
            )
    return HostSettings(**values)


_chosen: ContextSetting[dict[str, object]] = ContextSetting("host_settings", {})


def host_settings() -> HostSettings:
    """The settings in force: what `configure` chose over what the environment says."""
    return replace(_from_environment(), **_chosen.get())


def configure(**choices: object) -> HostSettings:
    """Choose settings for the models compiled from now on, such as host="inductor"."""
    known = [field.name for field in fields(HostSettings)]
    for name in choices:
        if name not in known:
            raise InvalidOption(f"unknown setting {name!r}.", hint=suggest(name, known))
    replace(host_settings(), **choices)  # refuses wrong values before anything changes
    _chosen.set(_chosen.get() | choices)
    return host_settings()


@contextmanager
def configured(**choices: object) -> Iterator[HostSettings]:
    """`configure` for a block of this thread."""
    with _chosen.set_inside(_chosen.get()):
        yield configure(**choices)

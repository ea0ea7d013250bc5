"""Which program was the fastest for a step in an earlier process, so that the next begins with it.

A choice is a file beside what Inductor has cached: where that was removed, the choice is, too, and
is made again. It is known by the step's operations and shapes, the GPU and the versions.
"""

import getpass
import os
import re
import tempfile
from hashlib import sha256
from pathlib import Path

import torch

from tremula.base.storage.atomic_file import atomic_file
from tremula.ir.host.compiled.keys import digest, graph_lines, surroundings
from tremula.ir.host.compiled.programs import start_key
from tremula.ir.repetition import Repetition
from tremula.ir.step import BUFFER, INPUT, PARAMETER, CapturedStep, bytes_of

_CHOICES = ("cuda-graph", "inductor-cuda-graph")


def choice_key(step: CapturedStep, device: torch.device, repetition: Repetition) -> str:
    """What a choice depends on."""
    about = [*surroundings(device), repr(repetition), repr(step.rule)]
    return digest([*about, *graph_lines(step.graph)])


def program_key(step: CapturedStep, device: torch.device, repetition: Repetition) -> str:
    """What a stored program depends on: also the values of constants, and strides."""
    constants = (f"{name} {sha256(bytes_of(v)).hexdigest()}" for name, v in step.constants.items())
    values = [node.meta.get("val") for node in step.placeholders()]
    strides = (str(v.stride()) for v in values if isinstance(v, torch.Tensor))
    slots = (repr(step.inputs), repr(step.outputs), repr(torch.backends.cudnn.deterministic))
    return digest([choice_key(step, device, repetition), *slots, *strides, *constants])


def start_key_of(step: CapturedStep) -> str:
    """What was known of a step before it was captured."""
    tensors = (
        (slot.name, node.meta["val"].shape, node.meta["val"].dtype)
        for slot, node in zip(step.inputs, step.placeholders(), strict=True)
        if slot.kind in (PARAMETER, BUFFER, INPUT)
    )
    return start_key(tensors)


def known_choice(key: str) -> str | None:
    """The backend that was chosen earlier; None if that is not known."""
    try:
        choice = _file(key).read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    return choice if choice in _CHOICES else None


def remember_choice(key: str, backend: str) -> None:
    """Write a choice; where nothing can be written, the next process chooses again."""
    path = _file(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path, "w") as file:
            file.write(backend)
    except OSError:
        return


def forget_choice(key: str) -> None:
    """Remove a choice that could not be repeated."""
    _file(key).unlink(missing_ok=True)


def _file(key: str) -> Path:
    """Below Inductor's cache folder; its own function for that would load all of Inductor."""
    chosen = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return Path(chosen or _default_folder(), "tremula", key)


def _default_folder() -> Path:
    try:
        user = getpass.getuser()
    except (KeyError, ModuleNotFoundError, OSError):
        user = f"uid_{os.getuid()}"
    name = re.sub(r'[\\/:*?"<>|]', "_", user)
    return Path(tempfile.gettempdir(), f"torchinductor_{name}")

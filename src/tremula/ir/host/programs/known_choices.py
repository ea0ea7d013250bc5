"""Which program was the fastest for a step in an earlier process, so that the next begins with it.

A choice is a file beside what Inductor has cached: where that was removed, the choice is, too, and
is made again. It is known by the step's operations and shapes, the GPU and the versions.
"""

from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from torch import Tensor, fx

from tremula.base.storage.atomic_file import atomic_file
from tremula.ir.repetition import Repetition
from tremula.ir.step import CapturedStep

_CHOICES = ("cuda-graph", "inductor-cuda-graph")
_PACKAGES = ("tremula", "torch", "triton")


def choice_key(step: CapturedStep, device: torch.device, repetition: Repetition) -> str:
    """What a choice depends on."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    precision = torch.get_float32_matmul_precision()
    about = [gpu, precision, repr(repetition), repr(step.rule), *map(_version, _PACKAGES)]
    return sha256("\n".join([*about, *_lines(step.graph)]).encode()).hexdigest()[:32]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _lines(graph: fx.Graph) -> list[str]:
    """Each node with its operands by number, and the shape and type of its result."""
    numbers = {node: _Number(index) for index, node in enumerate(graph.nodes)}
    lines = []
    for node in graph.nodes:
        args = fx.map_arg((node.args, node.kwargs), numbers.__getitem__)
        value = node.meta.get("val")
        kind = (tuple(value.shape), value.dtype) if isinstance(value, Tensor) else ""
        target = _name(node.target) if node.op == "call_function" else ""
        lines.append(f"{node.op} {target} {args} {kind}")
    return lines


def _name(target: object) -> str:
    """An operation, or a function of Python without its address."""
    module, name = (getattr(target, a, "") for a in ("__module__", "__qualname__"))
    return f"{module}.{name}" if module and name else str(target)


class _Number(int):
    """The place of a node in its graph, as an operand."""

    def __repr__(self) -> str:
        return f"%{int(self)}"


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
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return Path(cache_dir(), "tremula", key)

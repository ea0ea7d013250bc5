"""What a compiled function or program depends on, as a short digest.

It depends on operations, shapes, types, strides and numbers in the graph; on the GPU, or the CPU;
on the versions of Tremula, PyTorch, Triton and Python; on settings of PyTorch and Inductor.
"""

import os
import platform
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from torch import Tensor, fx

_PACKAGES = ("tremula", "torch", "triton")
# Variables that say where something is, or how it is compiled, not what.
_MEANS = ("_", "compile_threads", "worker_start_method", "cache_dir")  # settings alike
_PLACES = ("_CACHE_DIR", "_COMPILE_THREADS", "_HOME", "_WORKER_START")


def digest(lines: Iterable[str]) -> str:
    """The name of what is described by some lines."""
    return sha256("\n".join(lines).encode()).hexdigest()[:32]


def surroundings(device: torch.device) -> list[str]:
    """What compiled code depends on besides the graph."""
    return [
        _hardware(device),
        *_versions(),
        torch.get_float32_matmul_precision(),
        str(torch.are_deterministic_algorithms_enabled()),
        *sorted(f"{name}={value}" for name, value in os.environ.items() if _matters(name)),
        repr(sorted(settings_of_inductor().items(), key=str)),
    ]


def _hardware(device: torch.device) -> str:
    if device.type != "cuda":
        return f"{device} {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    properties = torch.cuda.get_device_properties(device)
    capability = torch.cuda.get_device_capability(device)
    return f"{device} {properties.name} {capability} {properties.multi_processor_count}"


@cache
def _versions() -> tuple[str, ...]:
    return (platform.python_version(), *map(_version, _PACKAGES), _sources())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _sources() -> str:
    """When Tremula's passes were changed last: a working copy changes without a new version."""
    folder = Path(__file__).parents[2]
    files = list(folder.rglob("*.py"))
    return f"{len(files)} {max(file.stat().st_mtime_ns for file in files)}"


def _matters(variable: str) -> bool:
    is_setting = variable.startswith(("TORCHINDUCTOR_", "TRITON_"))
    return is_setting and not variable.endswith(_PLACES)


def settings_of_inductor() -> dict[str, object]:
    """What a script has changed of Inductor's settings; empty if it has not loaded them."""
    config = sys.modules.get("torch._inductor.config")
    if config is None:
        return {}
    changed: dict[str, object] = config._get_dict(skip_default=True)
    return {
        name: value
        for name, value in changed.items()
        if not name.startswith(_MEANS)
        and value != getattr(config._config.get(name), "default", None)  # set, to what it was
    }


def graph_lines(graph: fx.Graph) -> list[str]:
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


def argument_lines(args: Sequence[Tensor]) -> list[str]:
    """What compiled code expects of its arguments."""
    return [f"{tuple(x.shape)} {x.stride()} {x.dtype} {x.device.type}" for x in args]

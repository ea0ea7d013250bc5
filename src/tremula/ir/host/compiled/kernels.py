"""Kernels of compiled functions, launched without the compiler that made them.

A GPU kernel is a cubin and a few lines that compute its grid; Inductor compiles several for most
kernels, of which the first call measures the fastest. A kernel of a CPU is a library with a
function for Python. Neither needs Inductor or Triton, whose import alone takes seconds.
"""

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ExtensionFileLoader
from pathlib import Path

import torch
from torch import Tensor

_N_TIMED = 5  # launches of a candidate; the shortest counts


@dataclass(frozen=True)
class Launch:
    """One way to launch a GPU kernel."""

    binary: str  # the name of its cubin among the stored files
    symbol: str
    n_warps: int
    n_shared_bytes: int
    types: str  # of the arguments, a character each as PyTorch's launcher wants them
    n_scratch: int  # null pointers that follow the arguments
    text: str  # a function `launcher(…, stream)` that calls `runner(grid_0, grid_1, grid_2, …)`
    mutated: tuple[int, ...] = ()  # arguments that the kernel reads and writes


@dataclass(frozen=True)
class LibraryKernel:
    """A function of a library for Python."""

    binary: str
    symbol: str


Kernel = tuple[Launch, ...] | LibraryKernel
Runner = Callable[..., object]


class GpuKernel:
    """A kernel with its candidates; `chosen` is the index of the one that calls launch."""

    def __init__(self, launches: Sequence[Launch], paths: Sequence[Path], device: int):
        self._launches = launches
        self._runners = [
            _gpu_runner(launch, path, device) for launch, path in zip(launches, paths, strict=True)
        ]
        self.chosen: int | None = 0 if len(launches) == 1 else None

    def run(self, *args: object, stream: int) -> None:
        if self.chosen is None:
            times = [self._time(index, args, stream) for index in range(len(self._runners))]
            self.chosen = min(range(len(times)), key=times.__getitem__)
        self._runners[self.chosen](*args, stream=stream)

    def _time(self, index: int, args: Sequence[object], stream: int) -> float:
        """Milliseconds of the shortest launch, on copies of what it changes."""
        mutated = set(self._launches[index].mutated)
        copies = [
            arg.clone() if number in mutated and isinstance(arg, Tensor) else arg
            for number, arg in enumerate(args)
        ]
        times = []
        for _ in range(_N_TIMED + 1):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            self._runners[index](*copies, stream=stream)
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return min(times[1:])  # the first one loads the code


def _gpu_runner(launch: Launch, path: Path, device: int) -> Runner:
    from torch._C import _StaticCudaLauncher  # only in builds for GPUs

    symbol, n_shared = launch.symbol, launch.n_shared_bytes
    # ([module,] function, registers, spills), by version
    function = _StaticCudaLauncher._load_kernel(str(path), symbol, n_shared, device)[-3]
    types = launch.types + "O" * launch.n_scratch
    scratch = (None,) * launch.n_scratch

    def runner(x: int, y: int, z: int, stream: int, *args: object) -> None:
        _StaticCudaLauncher._launch_kernel(
            function, x, y, z, launch.n_warps, n_shared, types, (*args, *scratch), stream
        )

    scope: dict[str, Runner] = {"runner": runner}
    exec(launch.text, scope)
    return scope["launcher"]


def library_function(kernel: LibraryKernel, path: Path) -> Runner:
    """The function of a library that Inductor compiled for this CPU."""
    address = torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr  # pyright: ignore[reportAttributeAccessIssue] - not in stubs
    os.environ["_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"] = str(address)  # it reads it when loaded
    name = f"{path.stem}.{kernel.symbol}"
    spec = importlib.util.spec_from_loader(name, ExtensionFileLoader(name, str(path)))
    assert spec is not None, "a loader was passed"
    assert spec.loader is not None, "a loader was passed"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, kernel.symbol)

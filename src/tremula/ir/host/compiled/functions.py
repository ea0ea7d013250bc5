"""Compiled functions as plain data, and how they are made callable without Inductor.

What Inductor generates is a text: a function that allocates, launches kernels and calls ATen. Its
imports take seconds, but it uses a dozen names of them. Here the functions of the text run with
these names only; a text that needs another one is not stored.
"""

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tremula.ir.host.compiled.kernels import GpuKernel, Kernel, LibraryKernel, library_function

_N_ALIGNMENT = 16  # bytes: generated kernels expect their operands to begin at multiples
_UNUSED = {"benchmark_compiled_module", "get_args"}
_ASSIGNED = {"runner", "call"}


class CannotStoreError(Exception):
    """A function needs something that a later process would not have."""


@dataclass(frozen=True)
class FunctionRecord:
    """A function of tensors that Inductor has compiled."""

    text: str
    kernels: Mapping[str, Kernel]  # by their names in the text
    n_results: int
    checked_inputs: tuple[int, ...]  # those that are copied if their address is not aligned
    strides: tuple[tuple[int, ...], ...] = ()  # of the inputs; others are copied to have them

    def binaries(self) -> set[str]:
        """The names of the stored files that the kernels are in."""
        return {
            one.binary
            for kernel in self.kernels.values()
            for one in ((kernel,) if isinstance(kernel, LibraryKernel) else kernel)
        }


class CompiledFunction:
    """A record made callable."""

    def __init__(
        self, record: FunctionRecord, path_of: Callable[[str], Path], device: torch.device
    ):
        self.record = record
        index = device.index if device.index is not None else _current(device)
        self.kernels: dict[str, GpuKernel] = {}
        scope = generated_names()
        for name, kernel in record.kernels.items():
            if isinstance(kernel, LibraryKernel):
                scope[name] = library_function(kernel, path_of(kernel.binary))
            else:
                paths = [path_of(launch.binary) for launch in kernel]
                scope[name] = self.kernels[name] = GpuKernel(kernel, paths, index)
        exec(compile(record.text, "<compiled by Inductor>", "exec"), scope)
        self._call: Callable[[list[Tensor]], Sequence[Tensor]] = scope["call"]

    def __call__(self, args: Sequence[Tensor]) -> list[Tensor]:
        own = with_strides(args, self.record.strides)
        for index in self.record.checked_inputs:
            if own[index].data_ptr() % _N_ALIGNMENT:
                own[index] = _copied(own[index], own[index].stride())
        return list(self._call(own))[: self.record.n_results]

    def has_chosen(self) -> bool:
        """Whether calls have chosen among candidates since the record was made."""
        launches = [self.record.kernels[name] for name in self.kernels]
        return any(isinstance(some, tuple) and len(some) > 1 for some in launches) and all(
            kernel.chosen is not None for kernel in self.kernels.values()
        )

    def take_choice(self) -> FunctionRecord:
        """From now on, the record with only the launches that the first call chose."""
        kernels = dict(self.record.kernels)
        for name, kernel in self.kernels.items():
            launches = self.record.kernels[name]
            if kernel.chosen is not None and not isinstance(launches, LibraryKernel):
                kernels[name] = (launches[kernel.chosen],)
        self.record = replace(self.record, kernels=kernels)
        return self.record


def _current(device: torch.device) -> int:
    return torch.cuda.current_device() if device.type == "cuda" else 0


def with_strides(args: Sequence[Tensor], strides: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Arguments as compiled code expects them in memory; copies of those that are not."""
    own = list(args)
    for index, stride in enumerate(strides):
        pairs = zip(own[index].shape, own[index].stride(), stride, strict=True)
        if any(size > 1 and mine != expected for size, mine, expected in pairs):
            own[index] = _copied(own[index], stride)
    return own


def _copied(tensor: Tensor, stride: Sequence[int]) -> Tensor:
    return torch.empty_strided(
        tensor.shape, stride, dtype=tensor.dtype, device=tensor.device
    ).copy_(tensor)


def stored_text(source: str, kernels: Mapping[str, Kernel]) -> str:
    """The functions of a generated text; raises CannotStoreError if they use other names."""
    tree = ast.parse(source)
    body = [node for node in tree.body if _is_stored(node)]
    text = ast.unparse(ast.Module(body, type_ignores=[]))
    defined = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    known = {*generated_names(), *kernels, *defined, *_ASSIGNED}
    missing = sorted(_global_names(compile(text, "<compiled by Inductor>", "exec")) - known)
    if missing:
        raise CannotStoreError(f"it uses {', '.join(missing)}")
    for name in _extern_kernels(ast.parse(text)):
        if not hasattr(_Externs, name) and not hasattr(torch, name):
            raise CannotStoreError(f"it calls {name}")
    return text


def _is_stored(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name not in _UNUSED
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id in _ASSIGNED
    return False


def _global_names(code: object) -> set[str]:
    """The global names that code, and the functions in it, read."""
    import builtins
    import dis
    from types import CodeType

    assert isinstance(code, CodeType), "compiled"
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    names = {str(i.argval) for i in dis.get_instructions(code) if i.opname in loads}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return {name for name in names if not hasattr(builtins, name) and not name.startswith("__")}


def _extern_kernels(tree: ast.AST) -> set[str]:
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "extern_kernels"
    }


class _Externs:
    """Operations of libraries under the names that generated code uses: PyTorch's own."""

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)

    @staticmethod
    def bias_addmm(bias: Tensor, *factors: Tensor, out: Tensor, **scales: float) -> Tensor:
        """A product plus one row: with a vector, cuBLAS adds it in the same kernel."""
        is_row = bias.stride(0) == 0 or bias.size(0) == 1
        return torch.addmm(bias[0] if is_row else bias, *factors, out=out, **scales)


def generated_names() -> dict[str, Any]:
    """The names that generated functions may use."""
    from torch._C._dynamo.guards import (
        _empty_strided_cpu,  # pyright: ignore[reportAttributeAccessIssue] - PyTorch's stubs lack it
        _empty_strided_cuda,  # pyright: ignore[reportAttributeAccessIssue]
        _reinterpret_tensor,  # pyright: ignore[reportAttributeAccessIssue]
        assert_alignment,
        assert_size_stride,
    )

    names: dict[str, Any] = {
        "torch": torch,
        "math": math,
        "inf": math.inf,
        "nan": math.nan,
        "device": torch.device,
        "empty_strided": torch.empty_strided,
        "aten": torch.ops.aten,
        "extern_kernels": _Externs(),
        "alloc_from_pool": torch.ops.inductor._alloc_from_pool,
        "assert_size_stride": assert_size_stride,
        "assert_alignment": assert_alignment,
        "empty_strided_cpu": _empty_strided_cpu,
        "empty_strided_cuda": _empty_strided_cuda,
        "reinterpret_tensor": _reinterpret_tensor,
    }
    if hasattr(torch._C, "_cuda_getCurrentRawStream"):
        names["get_raw_stream"] = torch._C._cuda_getCurrentRawStream
    return names

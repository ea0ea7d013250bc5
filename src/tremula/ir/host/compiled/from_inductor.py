"""What Inductor has compiled, as a record that a later process can load without it."""

from collections.abc import Sequence
from pathlib import Path
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from tremula.ir.host.compiled.functions import (
    CannotStoreError,
    FunctionRecord,
    generated_names,
    stored_text,
)
from tremula.ir.host.compiled.kernels import Kernel, Launch, LibraryKernel
from tremula.ir.host.compiled.store import store_binary

if TYPE_CHECKING:
    from torch._inductor.output_code import CompiledFxGraph
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner


_MAX_NAME = 150  # characters of a kernel's name that Triton uses for its files


def record_of(
    compiled: "CompiledFxGraph", n_results: int, strides: Sequence[tuple[int, ...]]
) -> FunctionRecord:
    """The record of a graph that was compiled, and run if it is for a GPU: it knows the fastest.

    Its binaries are stored; raises CannotStoreError if the graph needs this process.
    """
    runner = compiled.compiled_fn_runner
    if runner is None:
        raise CannotStoreError("it is not a text of Python")
    if compiled.mutated_input_idxs:
        raise CannotStoreError("it changes its inputs")
    if compiled.constants or compiled.frozen_param_names or compiled.torchbind_constants:
        raise CannotStoreError("it has constants")
    scope = type(runner).call.__globals__
    known = generated_names()
    kernels = {
        name: kernel
        for name, value in scope.items()
        if name not in known and (kernel := _kernel(value)) is not None
    }
    text = stored_text(compiled.source_code, kernels)
    checked = tuple(compiled.inputs_to_check)
    return FunctionRecord(text, kernels, n_results, checked, tuple(strides))


def _kernel(value: object) -> Kernel | None:
    """A global value of generated code as a kernel; None if it is something else."""
    if hasattr(value, "compile_results") and hasattr(value, "launchers"):
        return _launches(value)  # pyright: ignore[reportArgumentType]
    library = getattr(value, "__self__", None)
    path = getattr(library, "__file__", None) or ""
    if isinstance(value, BuiltinFunctionType) and str(path).endswith(".so"):
        return LibraryKernel(store_binary(Path(path), ".so"), value.__name__)
    return None


def _launches(autotuner: "CachingAutotuner") -> tuple[Launch, ...]:
    """The launch that was measured to be the fastest, or all if none has been measured."""
    measured = [_config_key(launcher.config) for launcher in autotuner.launchers]
    results = [
        r for r in autotuner.compile_results if not measured or _config_key(r.config) in measured
    ]
    if not results:
        raise CannotStoreError("a kernel was not compiled")
    if len(results) > 1 and autotuner.reset_to_zero_arg_names:
        raise CannotStoreError("a kernel adds to what must be zero before")
    mutated = tuple(autotuner.mutated_arg_names or ())
    return tuple(_launch(result, mutated) for result in results)


def _config_key(config: Any) -> tuple:  # noqa: ANN401 - of Triton, which may not be installed
    return (tuple(sorted(config.kwargs.items())), config.num_warps, config.num_stages)


def _launch(result: Any, mutated: tuple[str, ...]) -> Launch:  # noqa: ANN401
    """One compiled form of a kernel."""
    kernel = _launchable(result)
    _, parameters, none_args = result._get_arg_lists(kernel.arg_names, kernel.declared_constexprs)
    passed = [
        name
        for index, name in enumerate(kernel.arg_names)
        if index not in kernel.full_constexprs and name not in none_args
    ]
    return Launch(
        store_binary(_cubin(result, kernel.name), ".cubin"),
        kernel.name,
        kernel.num_warps,
        kernel.shared,
        kernel.arg_tys,
        int(kernel.has_global_scratch) + int(kernel.has_profile_scratch),
        _launcher_text(result, parameters, passed),
        tuple(index for index, name in enumerate(parameters) if name in mutated),
    )


def _launcher_text(result: Any, parameters: list[str], passed: list[str]) -> str:  # noqa: ANN401
    """A function of what generated code passes, which computes the grid."""
    from torch._inductor.runtime.triton_heuristics import GridExpr

    grid = GridExpr.from_meta(result.inductor_meta, result.config)
    lines = [
        f"def launcher({', '.join([*parameters, 'stream'])}):",
        *(f"    {line}" for line in grid.prefix),
        f"    grid_0 = {grid.x_grid}",
        f"    grid_1 = {grid.y_grid}",
        f"    grid_2 = {grid.z_grid}",
        f"    runner({', '.join(['grid_0', 'grid_1', 'grid_2', 'stream', *passed])})",
    ]
    return "\n".join(lines)


def _launchable(result: Any) -> Any:  # noqa: ANN401
    """A kernel as PyTorch's launcher takes it, also if Inductor launches it through Triton."""
    kernel = result.kernel
    if hasattr(kernel, "arg_tys"):
        return kernel
    from torch._inductor.runtime.static_triton_launcher import StaticallyLaunchedCudaKernel

    name = getattr(getattr(kernel, "metadata", None), "name", "a kernel")
    if getattr(kernel.metadata, "launch_cooperative_grid", False):
        raise CannotStoreError(f"{name} must be launched as a cooperative grid")
    try:
        kernel._cubin_path = str(_cubin(result, name))
        return StaticallyLaunchedCudaKernel(kernel)
    except (NotImplementedError, AttributeError, KeyError) as error:
        raise CannotStoreError(f"{name} needs Triton: {type(error).__name__} {error}") from error


def _cubin(result: Any, name: str) -> Path:  # noqa: ANN401
    """The file in Triton's cache that has the code of a kernel."""
    from torch._inductor.runtime.cache_dir_utils import triton_cache_dir
    from torch._inductor.runtime.runtime_utils import triton_hash_to_path_key

    folder = triton_cache_dir(result.compile_meta.get("device") or 0)
    path = Path(folder, triton_hash_to_path_key(result.kernel.hash), f"{name[:_MAX_NAME]}.cubin")
    if not path.is_file():
        raise CannotStoreError(f"Triton's cache has no {path.name}")
    return path

"""What the compiling process does once, so that its forks need not: imports, tables, patterns.

Nothing here may use a GPU: a process that has a context on one cannot be forked.
"""

import contextlib
import importlib

import torch

# What Inductor imports only when it compiles.
_LATE_IMPORTS = (
    "sympy.tensor.tensor",
    "torch._inductor.bounds",
    "torch._inductor.choices",
    "torch._inductor.codegen.cuda.device_op_overrides",
    "torch._inductor.codegen.memory_planning",
    "torch._inductor.codegen.segmented_tree",
    "torch._inductor.codegen.triton",
    "torch._inductor.compiler_bisector",
    "torch._inductor.extern_node_serializer",
    "torch._inductor.fx_passes.efficient_conv_bn_eval",
    "torch._inductor.fx_passes.freezing_patterns",
    "torch._inductor.fx_passes.mkldnn_fusion",
    "torch._inductor.fx_passes.pad_mm",
    "torch._inductor.fx_passes.quantization",
    "torch._inductor.hooks",
    "torch._inductor.kernel_template_choice",
    "torch._inductor.runtime.caching",
    "torch.fx.experimental.validator",
    "triton.compiler.code_generator",
)


def load() -> None:
    """Import Inductor, and fill what its first use fills."""
    import torch._inductor.async_compile
    import torch._inductor.compile_fx
    import torch._inductor.fx_passes.joint_graph
    import torch._inductor.lowering
    import torch._inductor.runtime.triton_heuristics  # noqa: F401

    # What fails here fails again in a fork, which reports it with the function it compiles.
    for prepare in prepare_generators, read_patterns, import_the_rest:
        with contextlib.suppress(Exception):
            prepare()


def prepare_generators() -> None:
    """Code generators, hashes of PyTorch's and Triton's files, Triton's driver (built from C)."""
    from torch._inductor.codecache import torch_key
    from torch._inductor.codegen.common import init_backend_registration
    from torch._inductor.runtime.triton_compat import HAS_TRITON, triton_key

    init_backend_registration()
    torch_key()
    if HAS_TRITON:
        from triton.runtime.driver import driver  # pyright: ignore[reportMissingImports]

        triton_key()
        _ = driver.active


def read_patterns() -> None:
    """Patterns of attention, as for a CPU: for a GPU a fork registers them again, in half the time.

    PyTorch cannot make their scalar operands on a GPU without a context there.
    """
    from torch._inductor.fx_passes.fuse_attention import _sfdp_init
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        _sfdp_init(torch.device("cpu"))


def import_the_rest() -> None:
    """Modules that each fork would import; other versions of PyTorch may not have all."""
    for name in _LATE_IMPORTS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)

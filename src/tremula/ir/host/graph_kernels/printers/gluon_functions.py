"""What every kernel in Gluon begins with: the functions that it calls, and its parameters."""

from tremula.ir.host.graph_kernels.expressions import GLUON, softplus_function

_APPROXIMATIONS = '''"""Written by tremula.ir.host.graph_kernels: do not edit."""

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def _nearest(x):
    """The nearest number of TF32."""
    return gl.inline_asm_elementwise(
        "cvt.rna.tf32.f32 $0, $1;", "=r,r", [x], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def _rounded(x):
    """To TF32 for the units, which cut off the last 13 bits: half of their range is added."""
    return gl.inline_asm_elementwise(
        "{{ .reg .pred is_finite; .reg .f32 size; abs.f32 size, $1; mov.b32 $0, $1;"
        " setp.lt.f32 is_finite, size, 0f7F800000; @is_finite add.u32 $0, $1, 4096; }}",
        "=r,r", [x], dtype=gl.float32, is_pure=True, pack=1,
    )


@gluon.jit
def _exp(x):
    """The exponential in a third of the instructions of `gl.exp`; zero below 1e-38."""
    return gl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=r,r", [x * 1.4426950408889634], dtype=gl.float32,
        is_pure=True, pack=1,
    )


'''
_LAYOUTS = '''

@gluon.jit
def _sigmoid(x):
    """1 / (1 + exp(-x)), by the exponential that `_softplus` computes."""
    t = _exp(-gl.abs(x))
    inverse = gl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=r,r", [1.0 + t], dtype=gl.float32, is_pure=True, pack=1
    )
    return gl.where(x >= 0, inverse, t * inverse)


@gluon.jit
def _regrouped(x, N: gl.constexpr, M: gl.constexpr):
    """Columns 2t and 2t + 1 of eight as t and t + 4: a result of the units as their operand.

    No value leaves its register.
    """
    return gl.reshape(gl.permute(gl.reshape(x, [N, M // 8, 4, 2]), [0, 1, 3, 2]), [N, M])


@gluon.jit
def _grouped(i):
    """The column that `_regrouped` puts at i."""
    return i // 8 * 8 + i % 4 * 2 + i // 4 % 2


@gluon.jit
def _in_threads(x, BLOCK: gl.constexpr, SIZE: gl.constexpr):
    """Sums of the rows that a thread holds: a warp has 16 rows, a thread two of them."""
    return gl.sum(gl.reshape(x, [BLOCK // 16, 2, 8, SIZE]), 1)


@gluon.jit
def _down_threads(x, N_WARPS: gl.constexpr, BLOCK: gl.constexpr, SIZE: gl.constexpr):
    """Sums of the rows that a warp holds, where its rows are neighbours."""
    return gl.sum(gl.reshape(x, [N_WARPS, BLOCK // N_WARPS, SIZE]), 1)


@gluon.jit
def _across_threads(x, SIZE: gl.constexpr, BLOCK: gl.constexpr):
    """Sums of the rows that a thread holds, where rows are columns: two of eight."""
    return gl.sum(gl.sum(gl.reshape(x, [SIZE, BLOCK // 8, 4, 2]), 1), 2)


@gluon.jit
def _into_window(hot, x, part):
    """Rows summed into a window in float32: a second product adds what TF32 rounds off."""
    high = _nearest(x)
    part = mma_v2(hot, high, part, input_precision="tf32")
    return mma_v2(hot, x - high, part, input_precision="tf32")


@gluon.jit
def kernel({parameters}, BLOCK: gl.constexpr, WINDOW: gl.constexpr, num_warps: gl.constexpr):
'''

HEADER = _APPROXIMATIONS + softplus_function(GLUON) + _LAYOUTS

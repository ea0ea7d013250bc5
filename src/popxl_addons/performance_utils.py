"""Floating-point operations of a program.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.performance_utils import (
    elementwise_binary_flops,
    evaluate_FLOPs,
    evaluate_ir_FLOPs,
    format_flops_scientific,
    group_norm_flops,
    matmul_flops,
    print_FLOPs,
    total_FLOPs,
)

__all__ = [
    "elementwise_binary_flops",
    "evaluate_FLOPs",
    "evaluate_ir_FLOPs",
    "format_flops_scientific",
    "group_norm_flops",
    "matmul_flops",
    "print_FLOPs",
    "total_FLOPs",
]

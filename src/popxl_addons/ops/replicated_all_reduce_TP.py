"""Collectives of tensor parallel layers."""

from tremula.frontends.popxl_addons.ops.tensor_parallel import (
    replicated_all_reduce_identical_grad_inputs,
    replicated_all_reduce_identical_inputs,
    replicated_all_reduce_summed_grad,
)

__all__ = [
    "replicated_all_reduce_identical_grad_inputs",
    "replicated_all_reduce_identical_inputs",
    "replicated_all_reduce_summed_grad",
]

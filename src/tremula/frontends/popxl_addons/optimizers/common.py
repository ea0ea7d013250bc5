"""What steps of optimisers share: scaled gradients, states laid out like their variable."""

from functools import partial

import numpy as np

import popxl
from popxl import ops
from tremula.frontends.popxl_addons.graphs.module import Module

Number = float | popxl.Tensor


def scaled_gradient(
    grad: popxl.Tensor,
    loss_scaling: Number,
    global_norm: popxl.Tensor | None,
    global_norm_max: Number | None,
) -> popxl.Tensor:
    """The gradient of the unscaled loss, no longer than the largest norm allows.

    grad · (1 / loss_scaling) · max_norm / max(norm, max_norm)
    """
    if global_norm is None:
        if not isinstance(loss_scaling, popxl.Tensor) and loss_scaling == 1:
            return grad
        return ops.cast(grad, popxl.float32) * (1 / loss_scaling)
    if global_norm_max is None:
        raise ValueError("A global norm needs global_norm_max, the largest that is allowed")
    if not isinstance(global_norm_max, popxl.Tensor):
        global_norm_max = popxl.constant(global_norm_max, popxl.float32, "global_norm_max")
    shrunk = (global_norm_max * (1 / loss_scaling)) / ops.maximum(global_norm, global_norm_max)
    return ops.cast(grad, popxl.float32) * shrunk


def updated_moments(
    module: Module,
    var: popxl.Tensor,
    grad: popxl.Tensor,
    betas: tuple[Number, Number],
    first_dtype: popxl.dtype,
    replica_grouping: popxl.ReplicaGrouping | None,
) -> tuple[popxl.Tensor, popxl.Tensor]:
    """Moving averages of gradients and of their squares, new states of a module, with this one."""
    first = _add_state(module, "first_order", var, first_dtype, replica_grouping)
    second = _add_state(module, "second_order", var, popxl.float32, replica_grouping)
    ops.var_updates.accumulate_moving_average_(first, grad, f=betas[0])
    ops.var_updates.accumulate_moving_average_square_(second, grad, f=betas[1])
    return first, second


def add_step(module: Module) -> popxl.Tensor:
    """The state `step` of a module, which an updater counts up for the bias correction."""
    return module.add_variable_input("step", partial(np.zeros, ()), popxl.float32, True)


def _add_state(
    module: Module,
    name: str,
    var: popxl.Tensor,
    dtype: popxl.dtype,
    replica_grouping: popxl.ReplicaGrouping | None,
) -> popxl.Tensor:
    """A state like the variable: of the same shape, sharded if it is."""
    if not var.meta_shape:
        return module.add_variable_input(
            name, partial(np.zeros, var.shape), dtype, True, replica_grouping
        )
    n_whole = int(np.prod(var.meta_shape))
    return module.add_replica_sharded_variable_input(
        name, partial(np.zeros, var.meta_shape), dtype, True, replica_grouping,
        shard_over=n_whole // var.nelms,
    )  # fmt: skip

"""Adam for one variable: moments, bias correction, decoupled weight decay."""

import popxl
from popxl import ops
from tremula.frontends.popxl_addons.graphs.module import Module
from tremula.frontends.popxl_addons.optimizers.common import (
    Number,
    add_step,
    scaled_gradient,
    updated_moments,
)


class AdamOptimizerStep(Module):
    """One step of Adam: `var` is changed in place.

    State: `first_order`, `second_order` and, for the bias correction, `step`.
    """

    @popxl.in_sequence()
    def build(
        self,
        var: popxl.TensorByRef,
        grad: popxl.Tensor,
        replica_grouping: popxl.ReplicaGrouping | None = None,
        *,
        lr: Number,
        beta1: Number = 0.9,
        beta2: Number = 0.999,
        eps: float = 1e-5,
        weight_decay: Number = 1e-2,
        first_order_dtype: popxl.dtype = popxl.float16,
        bias_correction: bool = True,
        loss_scaling: Number = 1,
        global_norm: popxl.Tensor | None = None,
        global_norm_max: Number | None = None,
    ) -> None:
        """`loss_scaling` is divided out; gradients longer than `global_norm_max` are shortened."""
        grad = scaled_gradient(grad, loss_scaling, global_norm, global_norm_max)
        first, second = updated_moments(
            self, var, grad, (beta1, beta2), first_order_dtype, replica_grouping
        )
        step = add_step(self) if bias_correction else None
        updater = ops.var_updates.adam_updater(
            first, second, weight=var, time_step=step, weight_decay=weight_decay,
            beta1=beta1, beta2=beta2, epsilon=eps,
        )  # fmt: skip
        if updater.dtype != var.dtype:
            updater = ops.cast(updater, var.dtype)
        ops.scaled_add_(var, updater, b=-lr)

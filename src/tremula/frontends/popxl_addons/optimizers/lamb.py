"""LAMB for one variable: Adam's direction, as long as the variable's norm says."""

import popxl
from popxl import ops
from tremula.frontends.popxl_addons.graphs.module import Module
from tremula.frontends.popxl_addons.optimizers.common import (
    Number,
    add_step,
    scaled_gradient,
    updated_moments,
)


class LambOptimizerStep(Module):
    """One step of LAMB: `var` is changed in place.

    Of a shard, norms are completed over `shard_group`, the replicas that share the variable out.
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
        max_weight_norm: float | None = None,
        global_norm: popxl.Tensor | None = None,
        global_norm_max: Number | None = None,
        shard_group: popxl.ReplicaGrouping | None = None,
    ) -> None:
        """`max_weight_norm` bounds the norm that the step's length is taken from."""
        grad = scaled_gradient(grad, loss_scaling, global_norm, global_norm_max)
        first, second = updated_moments(
            self, var, grad, (beta1, beta2), first_order_dtype, replica_grouping
        )
        step = add_step(self) if bias_correction else None
        updater = ops.var_updates.lamb_updater(
            first, second, weight=var, time_step=step, weight_decay=weight_decay,
            beta1=beta1, beta2=beta2, epsilon=eps,
        )  # fmt: skip
        weight_norm = self._square_norm(var, shard_group)
        update_norm = self._square_norm(updater, shard_group)
        if not isinstance(lr, popxl.Tensor):
            lr = popxl.constant(lr, popxl.float32, "lr")
        ops.var_updates.adam_var_update(
            var, updater, weight_norm, update_norm, learning_rate=lr,
            max_weight_norm=max_weight_norm,
        )  # fmt: skip

    def _square_norm(self, t: popxl.Tensor, group: popxl.ReplicaGrouping | None) -> popxl.Tensor:
        square = ops.lamb_square(t)
        if not t.meta_shape:
            return square
        return ops.collectives.replicated_all_reduce(square, "add", group)

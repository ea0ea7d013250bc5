"""SchNet's interaction block, forward, as PyTorch Geometric writes it: one operation at a time.

A framework lowers each operator by itself, so nothing is fused here. With n atoms, e pairs of
atoms, f features and 50 Gaussians:

    filter = (ssp(gaussians W1 + b1) W2 + b2) * (cos(distance * pi / cutoff) + 1) / 2    [e, f]
    message = (x W3)[sender] * filter                                                    [e, f]
    x = ssp(sum of messages at each receiver W4 + b4) W5 + b5                            [n, f]

ssp is the shifted softplus, log(1 + exp(x)) - log(2).
"""

import math

from tremula.base.types import FLOAT
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.poplin.product.mat_mul import (
    ProductOptions,
    create_mat_mul_input_lhs,
    create_mat_mul_input_rhs,
    mat_mul,
)
from tremula.poplibs.popops.slicing.embedding_plan import plan as plan_lookups
from tremula.poplibs.popops.slicing.layout import create_indices_tensor, create_sliceable_tensor
from tremula.poplibs.popops.slicing.multi_slice import multi_slice
from tremula.validate.rows import MeasuredRow
from tremula.validate.workloads.gather import sum_rows
from tremula.validate.workloads.loop import proportion_of, time_in_loop
from tremula.validate.workloads.table import ModelledValue, workload

FAMILY = "SchNet block"
N_GAUSSIANS = 50
CUTOFF = 6.0


@workload("SchNet InteractionBlock forward", FAMILY)
def interaction_block(row: MeasuredRow, chip_name: str) -> ModelledValue:
    n_atoms, n_features, n_pairs = (
        row.number(k) for k in ("num_inputs", "num_features", "num_outputs")
    )

    def body(graph: Graph, once: Sequence) -> Tensor:
        return _Block(graph, once, n_atoms, n_features, n_pairs, proportion_of(row)).result()

    return time_in_loop(row, chip_name, body)


class _Block:
    """Builds one execution of the block."""

    def __init__(
        self,
        graph: Graph,
        once: Sequence,
        n_atoms: int,
        n_features: int,
        n_pairs: int,
        proportion: float,
    ) -> None:
        self.graph, self.once = graph, once
        self.n_atoms, self.n_features, self.n_pairs = n_atoms, n_features, n_pairs
        self.options = ProductOptions(available_memory_proportion=proportion)
        slices = {"available_memory_proportion": proportion}
        self.plan = plan_lookups(graph, FLOAT, n_atoms, n_features, n_pairs, slices)

    def result(self) -> Tensor:
        graph, once = self.graph, self.once
        distance = graph.add_variable(FLOAT, [self.n_pairs, 1], "distance", mapping="linear")
        weight = self._envelope(distance)
        shapes = (self.n_pairs, N_GAUSSIANS), (N_GAUSSIANS, self.n_features)
        gaussians = create_mat_mul_input_lhs(graph, FLOAT, *shapes, "gaussians", **self.options)
        hidden = self._softplus(self._linear(gaussians, "mlp.0"))
        filters = popops.mul(graph, self._linear(hidden, "mlp.2"), weight, once, "filter")
        shapes = (self.n_atoms, self.n_features), (self.n_features, self.n_features)
        atoms = create_mat_mul_input_lhs(graph, FLOAT, *shapes, "x", **self.options)
        x = self._linear(atoms, "lin1", has_bias=False)
        senders, receivers = (create_indices_tensor(graph, self.n_pairs) for _ in range(2))
        rows = multi_slice(graph, x, senders, once, "gather", plan=self.plan)
        messages = popops.mul(graph, rows.squeeze([1]), filters, once, "message")
        total = create_sliceable_tensor(
            graph, FLOAT, [self.n_atoms, self.n_features], name="sum", plan=self.plan
        )
        sum_rows(graph, total, messages.expand([1]), receivers, once, self.plan)
        return self._linear(self._softplus(self._linear(total, "lin2")), "lin")

    def _envelope(self, distance: Tensor) -> Tensor:
        """(cos(distance * pi / cutoff) + 1) / 2."""
        graph, once = self.graph, self.once
        angle = popops.mul(graph, distance, math.pi / CUTOFF, once, "angle")
        shifted = popops.add(graph, popops.cos(graph, angle, once, "cos"), 1.0, once, "shift")
        return popops.mul(graph, shifted, 0.5, once, "half")

    def _linear(self, x: Tensor, name: str, *, has_bias: bool = True) -> Tensor:
        graph, once = self.graph, self.once
        shapes = x.shape, (x.shape[1], self.n_features)
        weights = create_mat_mul_input_rhs(graph, FLOAT, *shapes, f"{name}.weight", **self.options)
        out = mat_mul(graph, x, weights, once, name, **self.options)
        if has_bias:
            bias = graph.add_variable(FLOAT, [self.n_features], f"{name}.bias", mapping="linear")
            popops.add_in_place(graph, out, bias, once, f"{name}.bias")
        return out

    def _softplus(self, x: Tensor) -> Tensor:
        """log(1 + exp(-|x|)) + max(x, 0) - log(2), as the measured model writes it."""
        graph, once = self.graph, self.once
        small = popops.neg(graph, popops.abs(graph, x, once, "abs"), once, "neg")
        soft = popops.log1p(graph, popops.exp(graph, small, once, "exp"), once, "log1p")
        positive = popops.maximum(graph, x, 0.0, once, "clampMin")
        total = popops.add(graph, soft, positive, once, "add")
        return popops.sub(graph, total, math.log(2), once, "shift")

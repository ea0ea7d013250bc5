"""Expressions in PopXL: a graph that is called, its gradient, and explicit updates."""

from collections.abc import Sequence

import numpy as np

import popart
import popxl
from popxl import ops
from popxl_addons import GraphWithNamedArgs
from popxl_addons.transforms.recomputation import recompute_graph
from tools.fuzz.case import Case
from tools.fuzz.expressions.operations import evaluate
from tools.fuzz.expressions.reference import LEARNING_RATE, data_of

N_TILES = 8


class PopxlAlgebra:
    """The primitive operations of PopXL."""

    def shape(self, x: popxl.Tensor) -> tuple[int, ...]:
        return tuple(x.shape)

    def constant(self, number: float, like: popxl.Tensor) -> popxl.Tensor:
        return popxl.constant(number, like.dtype)

    def add(self, x: popxl.Tensor, y: popxl.Tensor) -> popxl.Tensor:
        return ops.add(x, y)

    def sub(self, x: popxl.Tensor, y: popxl.Tensor) -> popxl.Tensor:
        return ops.sub(x, y)

    def mul(self, x: popxl.Tensor, y: popxl.Tensor) -> popxl.Tensor:
        return ops.mul(x, y)

    def div(self, x: popxl.Tensor, y: popxl.Tensor) -> popxl.Tensor:
        return ops.div(x, y)

    def maximum(self, x: popxl.Tensor, y: popxl.Tensor) -> popxl.Tensor:
        return ops.maximum(x, y)

    def unary(self, name: str, x: popxl.Tensor) -> popxl.Tensor:
        if name == "sigmoid":  # PopXL has none
            one = self.constant(1.0, x)
            return ops.div(one, ops.add(one, ops.exp(ops.negate(x))))
        return getattr(ops, {"neg": "negate"}.get(name, name))(x)

    def matmul(self, x: popxl.Tensor, y: popxl.Tensor) -> popxl.Tensor:
        return ops.matmul(x, y)

    def reshape(self, x: popxl.Tensor, shape: Sequence[int]) -> popxl.Tensor:
        return ops.reshape(x, tuple(shape))

    def transpose(self, x: popxl.Tensor, order: Sequence[int]) -> popxl.Tensor:
        return ops.transpose(x, tuple(order))

    def reduce(self, name: str, x: popxl.Tensor, axis: int) -> popxl.Tensor:
        return getattr(ops, name)(x, axis, keepdims=True)

    def softmax(self, x: popxl.Tensor, axis: int) -> popxl.Tensor:
        return ops.softmax(x, axis)

    def concat(self, parts: Sequence[popxl.Tensor], axis: int) -> popxl.Tensor:
        return ops.concat(list(parts), axis)

    def slice(self, x: popxl.Tensor, axis: int, begin: int, end: int) -> popxl.Tensor:
        return ops.slice(x, begin, end, axis=axis)

    def fp8_product(
        self, x: popxl.Tensor, w: popxl.Tensor, format: str, scale: int
    ) -> popxl.Tensor:
        type = {"143": popxl.float8_143, "152": popxl.float8_152}[format]
        small = ops.pow2scale_cast_to_fp8(x, scale, type), ops.pow2scale_cast_to_fp8(w, 0, type)
        return ops.cast(ops.matmul_pow2scaled(*small, -scale), x.dtype)


def run(case: Case, *, on_tiles: bool) -> list[np.ndarray]:
    """Outputs of each step, then the weights."""
    return _Program(case).run(on_tiles)


class _Program:
    def __init__(self, case: Case):
        self.case = case
        self.data, arrays = data_of(case)
        self.ir = popxl.Ir(replication=case["replicas"])
        n = case["accumulation"]
        shape, dtype = (case["batch"], *case["shape"]), popxl.dtype.as_dtype(self.data.dtype)
        with self.ir.main_graph:
            self.feeds = [popxl.h2d_stream(shape, dtype, f"x{i}") for i in range(n)]
            self.weights = [popxl.variable(w, name=f"w{i}") for i, w in enumerate(arrays)]
            self.trained = self.weights if case["training"] else []
            self.speeds = [popxl.variable(w * 0, name=f"v{i}") for i, w in enumerate(arrays)]
            self.fetches = []
            sums = [self._micro_batch(feed) for feed in self.feeds]
            self._update(sums)

    def _micro_batch(self, feed: popxl.HostToDeviceStream) -> list[popxl.Tensor]:
        """Load, compute, store; gradients of all weights."""
        x = ops.host_load(feed)
        graph = self.ir.create_graph(self._body, x.spec, *[w.spec for w in self.weights])
        info = ops.call_with_info(graph, x, *self.weights)
        (out,) = info.outputs
        fetch = popxl.d2h_stream(out.shape, out.dtype, f"out{len(self.fetches)}")
        self.fetches.append(fetch)
        ops.host_store(fetch, out)
        if not self.trained:
            return []
        grad = popxl.transforms.autodiff(graph, list(graph.outputs), list(graph.inputs[1:]))
        if self.case["recompute"]:
            grad = recompute_graph(GraphWithNamedArgs.from_grad_graph(grad)).grad_graph_info
        n_all = int(np.prod(out.shape)) * self.case["accumulation"] * self.case["replicas"]
        seed = ops.mul(out, popxl.constant(2.0 / n_all, out.dtype))
        return list(ops.call(grad.graph, seed, inputs_dict=grad.inputs_dict(info)))

    def _body(self, x: popxl.Tensor, *weights: popxl.Tensor) -> popxl.Tensor:
        if not self.case["nested"]:
            return evaluate(self.case, PopxlAlgebra(), x, weights)

        def inner(x: popxl.Tensor, *weights: popxl.Tensor) -> popxl.Tensor:
            return evaluate(self.case, PopxlAlgebra(), x, weights)

        graph = self.ir.create_graph(inner, x.spec, *[w.spec for w in weights])
        (out,) = ops.call(graph, x, *weights)
        return out

    def _update(self, sums: list[list[popxl.Tensor]]) -> None:
        for number, (weight, speed) in enumerate(zip(self.trained, self.speeds, strict=False)):
            total = sums[0][number]
            for other in sums[1:]:
                total = ops.add(total, other[number])
            if self.case["replicas"] > 1:
                total = self._over_replicas(total)
            speed_now = ops.add(
                ops.mul(speed, popxl.constant(self.case["momentum"], speed.dtype)), total
            )
            ops.var_updates.copy_var_update_(speed, speed_now)
            ops.scaled_add_(weight, speed_now, b=-LEARNING_RATE)

    def _over_replicas(self, total: popxl.Tensor) -> popxl.Tensor:
        if not self.case["sharded"]:
            return ops.collectives.replicated_all_reduce(total, "add")
        shard = ops.collectives.replicated_reduce_scatter(
            total, "add", configure_output_for_replicated_tensor_sharding=True
        )
        return ops.reshape(ops.collectives.replicated_all_gather(shard), total.shape)

    def run(self, on_tiles: bool) -> list[np.ndarray]:
        case, outputs = self.case, []
        replicas, n = case["replicas"], case["accumulation"]
        options = {"numIPUs": replicas, "tilesPerIPU": N_TILES}
        device = popart.DeviceManager().createIpuModelDevice(options) if on_tiles else "cpu"
        with popxl.Session(self.ir, device) as session:
            for samples in self.data:
                rows = samples.reshape(n, replicas, case["batch"], *case["shape"])
                rows = rows if replicas > 1 else rows[:, 0]
                result = session.run(dict(zip(self.feeds, rows, strict=True)))
                made = np.stack([result[fetch] for fetch in self.fetches])
                value_shape = self.fetches[0].shape[1:]
                outputs.append(made.reshape(-1, *value_shape))
            weights = [np.array(session.get_tensor_data(w)) for w in self.trained]
        return [*outputs, *weights]

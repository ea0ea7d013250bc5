"""Random programs over replicas: rows on the host and tiles give what the interpreter gives."""

import numpy as np
import pytest

import popart
import popxl
from popxl import ops
from tests.sampling import one_in

SHAPE = (2, 4)
N_RUNS = 3


class Program:
    """A main graph made of random pieces; every piece leaves a tensor of SHAPE."""

    def __init__(self, n_replicas: int, seed: int, n_pieces: int):
        self.rng = np.random.default_rng([n_replicas, seed])
        self.ir = ir = popxl.Ir(replication=n_replicas)
        self.n, self.each = n_replicas, ir.replica_grouping(1, 1)
        with ir.main_graph, popxl.in_sequence(True):
            self.input = popxl.h2d_stream(SHAPE, popxl.float32, "given")
            self.tensors = [ops.host_load(self.input), self.variable(*SHAPE)]
            self.written = [self.variable(*SHAPE)]
            self.number = popxl.variable(
                self.by_replica(np.arange(n_replicas, dtype=np.int32)), replica_grouping=self.each
            )
            self.buffer = popxl.remote_buffer(SHAPE, popxl.float32, n_replicas + 1)
            pieces = [getattr(self, name) for name in dir(self) if name.startswith("piece_")]
            order = self.rng.permutation(len(pieces))[:n_pieces]
            for i in order:
                self.tensors.append(ops.tanh(pieces[i](self.any())))
            self.result = popxl.d2h_stream(SHAPE, popxl.float32, "result")
            ops.host_store(self.result, ops.maximum(*self.tensors[-3:]))

    def by_replica(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.n > 1 else rows[0]

    def variable(self, *shape: int) -> popxl.Variable:
        rows = self.rng.normal(size=(self.n, *shape)).astype(np.float32)
        return popxl.variable(self.by_replica(rows), replica_grouping=self.each)

    def any(self) -> popxl.Tensor:
        return self.tensors[self.rng.integers(len(self.tensors))]

    def group(self) -> popxl.ReplicaGrouping:
        options = [(s, n) for s in (1, 2) for n in (1, 2, 4) if self.n % (s * n) == 0]
        return self.ir.replica_grouping(*options[self.rng.integers(len(options))])

    # -- pieces --

    def piece_product(self, x):
        return x @ self.variable(4, 4)

    def piece_all_reduce(self, x):
        name = ("add", "mean", "mul", "min", "max", "square_add")[self.rng.integers(6)]
        return ops.collectives.replicated_all_reduce(x, name, self.group())

    def piece_all_reduce_in_place(self, x):
        ops.collectives.replicated_all_reduce_(self.written[0], "mean", self.group())
        return x * self.written[0]

    def piece_gather_and_slice(self, x):
        group = self.group()
        whole = ops.collectives.replicated_all_gather(x, 1, group)
        return ops.collectives.replicated_slice(whole * 2.0, 1, group)

    def piece_new_axis(self, x):
        return ops.sum(ops.collectives.replicated_all_gather(x, 1, self.group(), "new_axis"), 1)

    def piece_scatter(self, x):
        group = self.group()
        shard = ops.collectives.replicated_reduce_scatter(x, "add", group, True)
        return ops.collectives.replicated_all_gather(shard * 0.5, 0, group)

    def piece_shard(self, x):
        group = self.group()
        return ops.collectives.replicated_all_gather(
            ops.collectives.replica_sharded_slice(x, group) + 1.0, 0, group
        )

    def piece_write(self, x):
        ops.add_(self.written[0], x * 0.25)
        return self.written[0] - x

    def piece_remote(self, x):
        ops.remote_store(self.buffer, self.number, x)
        return ops.remote_load(self.buffer, self.number + 1) + ops.remote_load(self.buffer, 0)

    def piece_branch(self, x):
        then = self.ir.create_graph(lambda t: t * 3.0, x)
        other = self.ir.create_graph(lambda t: t - 1.0, x)
        condition = ops.greater(ops.sum(x), popxl.constant(0.0))
        return ops.conditional(condition, then, other, [x], [x])[0]

    def piece_loops(self, x):
        """A loop in a loop; the inner one stores to remote memory."""
        group = self.group()

        def inner(t, place: popxl.TensorByRef):
            ops.remote_store(self.buffer, place, t)
            ops.increment_mod_(place, 1, self.n + 1)
            return ops.tanh(t * 1.5)

        def outer(t, place: popxl.TensorByRef):
            body = self.ir.create_graph(inner, t, place)
            (t,) = ops.repeat(body, 5, t, place)
            return ops.collectives.replicated_all_reduce(t, "mean", group)

        place = self.number + 0
        body = self.ir.create_graph(outer, x, place)
        return ops.repeat(body, 6, x, place)[0] + ops.remote_load(self.buffer, 0)

    def piece_gradient(self, x):
        w = self.variable(4, 4)
        graph = self.ir.create_graph(lambda t, w: ops.softmax(t @ w, 1), x, w)
        call = ops.call_with_info(graph, x, w)
        grad = popxl.transforms.autodiff(graph)
        dx, dw = ops.call(grad.graph, x, inputs_dict=grad.inputs_dict(call))
        ops.scaled_add_(w, dw, b=-0.1)
        return dx

    def piece_gradient_of_loop(self, x):
        w = self.variable(4, 4)
        body = self.ir.create_graph(lambda t, w: ops.tanh(t @ w) * 0.25, x, w)
        graph = self.ir.create_graph(lambda t, w: ops.repeat(body, 20, t, w)[0], x, w)
        call = ops.call_with_info(graph, x, w)
        grad = popxl.transforms.autodiff(graph)
        dx, dw = ops.call(grad.graph, x, inputs_dict=grad.inputs_dict(call))
        ops.scaled_add_(w, dw, b=-0.1)
        return dx + call.outputs[0]

    def piece_dropout(self, x):
        seeds = self.rng.integers(0, 2**31, (self.n, 2)).astype(np.uint32)
        seed = popxl.variable(self.by_replica(seeds), replica_grouping=self.each)
        return ops.dropout(x, seed, 0.3)


def runs(n_replicas: int, seed: int, device: object, n_pieces: int) -> list[np.ndarray]:
    """Results of several runs, then what variables hold."""
    program = Program(n_replicas, seed, n_pieces)
    result = []
    with popxl.Session(program.ir, device) as session:
        for k in range(N_RUNS):
            shape = (n_replicas, *SHAPE) if n_replicas > 1 else SHAPE
            x = np.random.default_rng([seed, k]).normal(size=shape).astype(np.float32)
            result.append(session.run({program.input: x})[program.result])
        result += [session.get_tensor_data(v) for v in program.ir.main_graph.variables]
    return result


def literal(monkeypatch: pytest.MonkeyPatch, *args: int) -> list[np.ndarray]:
    with monkeypatch.context() as patch:
        patch.setattr("tremula.frontends.popxl.run.session.MAX_COMPILED_OPERATIONS", 0)
        return runs(args[0], args[1], "cpu", args[2])


@pytest.mark.parametrize("n_replicas", one_in(2, [3, 1, 2, 4]))
@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_rows(monkeypatch, n_replicas, seed):
    """On the host, compiled for all replicas at once."""
    expected = literal(monkeypatch, n_replicas, seed, 15)
    for got, want in zip(runs(n_replicas, seed, "cpu", 15), expected, strict=True):
        np.testing.assert_allclose(got, want, 1e-4, 1e-5)


@pytest.mark.parametrize(("n_replicas", "seed"), one_in(2, [(4, 1), (2, 0)]))
def test_tiles(monkeypatch, n_replicas, seed):
    """On as many chips as replicas, with collectives between them."""
    chips = {"numIPUs": n_replicas, "tilesPerIPU": 4}
    device = popart.DeviceManager().createIpuModelDevice(chips)
    expected = literal(monkeypatch, n_replicas, seed, 15)
    for got, want in zip(runs(n_replicas, seed, device, 15), expected, strict=True):
        np.testing.assert_allclose(got, want, 1e-3, 1e-4)

"""Steps of Adam and LAMB, whole and sharded, against NumPy; sessions of a task."""

import numpy as np
import pytest

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.optimizers import AdamOptimizerStep, LambOptimizerStep
from popxl_addons.rts import gather_replica_sharded_tensor, replica_sharded_spec

W = np.linspace(-1, 1, 8).astype(np.float32)
G = np.linspace(2, -1, 8).astype(np.float32)
LR, B1, B2, EPS, DECAY = 0.1, 0.9, 0.99, 1e-5, 0.01


def adam_direction(w, g, n_steps):
    """Weights after some steps of Adam, and of LAMB, with the same gradient."""
    m = v = np.zeros_like(w)
    w_lamb = w.copy()
    m_lamb = v_lamb = m
    for t in range(1, n_steps + 1):
        m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g * g
        w = w - LR * (m / (1 - B1**t) / (np.sqrt(v / (1 - B2**t)) + EPS) + DECAY * w)
        m_lamb, v_lamb = B1 * m_lamb + (1 - B1) * g, B2 * v_lamb + (1 - B2) * g * g
        u = m_lamb / (1 - B1**t) / (np.sqrt(v_lamb / (1 - B2**t)) + EPS) + DECAY * w_lamb
        w_lamb = w_lamb - LR * np.linalg.norm(w_lamb) / np.linalg.norm(u) * u
    return w, w_lamb


@pytest.mark.parametrize("step", [AdamOptimizerStep, LambOptimizerStep])
@pytest.mark.parametrize("sharded", [False, True])
def test_two_steps(step, sharded):
    """Clipped, scaled gradients; moments of a shard are shards; norms are those of the whole."""
    ir = popxl.Ir(replication=2)
    scale, norm = 4.0, 8.0
    with ir.main_graph, popxl.in_sequence(True):
        var, gradient = popxl.variable(W), popxl.variable(G * scale)
        own, grad = var, gradient
        if sharded:
            _, own = popxl.replica_sharded_variable(W)
            grad = ops.collectives.replica_sharded_slice(gradient)
            assert own.spec == replica_sharded_spec(gradient, 2)
        options = {"shard_group": ir.replica_grouping()} if step is LambOptimizerStep else {}
        factories, graph = step().create_graph(
            own, grad, lr=LR, beta1=B1, beta2=B2, eps=EPS, weight_decay=DECAY,
            first_order_dtype=popxl.float32, loss_scaling=scale,
            global_norm=popxl.constant(norm, popxl.float32), global_norm_max=2.0, **options,
        )  # fmt: skip
        state = factories.init()
        for _ in range(2):
            graph.bind(state).call(own, grad, popxl.constant(norm, popxl.float32))
        result = gather_replica_sharded_tensor(own) if sharded else own
        stream = popxl.d2h_stream(result.shape, result.dtype)
        ops.host_store(stream, result)
        assert state.first_order.shape == ((4,) if sharded else (8,))
    with popxl.Session(ir, "cpu") as session:
        rows = session.run()[stream]
    expected = adam_direction(W, G * 2.0 / norm, 2)[step is LambOptimizerStep]
    np.testing.assert_allclose(rows, [expected, expected], rtol=1e-4, atol=1e-6)


def test_a_norm_needs_a_bound():
    """A global norm without the largest allowed one is an error."""
    ir = popxl.Ir()
    spec, scalar = (popxl.TensorSpec(shape, popxl.float32) for shape in ((8,), ()))
    with ir.main_graph, pytest.raises(ValueError, match="global_norm_max"):
        AdamOptimizerStep().create_graph(spec, spec, lr=0.1, global_norm=scalar)


def test_task_sessions_keep_checkpoints(tmp_path):
    """Variables are written and read by name; what is missing is an error, if asked."""

    def session_of(value, name="w"):
        ir = popxl.Ir()
        with ir.main_graph:
            inputs = addons.InputStreams(x=((), popxl.float32))
            outputs = addons.OutputStreams(y=((), popxl.float32))
            w = popxl.variable(np.float32(value))
            ops.host_store(outputs.y, ops.host_load(inputs.x) * w)
        model = addons.NamedTensors.from_dict({name: w})
        return addons.TaskSession(inputs, outputs, model, ir=ir, device_desc="cpu")

    path = str(tmp_path / "folder")
    with session_of(3) as session:
        session.save_checkpoint(path)
    with session_of(5) as session:
        session.load_checkpoint(path)
        assert session.run({session.inputs.x: np.float32(2)})[session.outputs.y] == 6
    with session_of(5, "v") as session, pytest.raises(ValueError, match="not in the checkpoint: v"):
        session.load_checkpoint(path, report_missing="error")

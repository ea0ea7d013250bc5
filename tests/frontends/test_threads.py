"""Threads that capture, compile and run models of all front ends at once are independent."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import popart
import poptorch
import popxl
import tremula
import tremula.jax
from popxl import ops
from tremula.frontends.onnx.compiled import compile_model
from tremula.frontends.onnx.imported import import_model
from tremula.keras import ipu

import jax.numpy as jnp  # isort: skip
import keras  # isort: skip - after tremula.keras, which chooses its backend

N_THREADS = 4
SIZES = (4, 5)  # of models: each thread's are different
# The script seeds and draws (initial weights, too) before threads start: PyTorch has one generator.
OPTIONS = {n: poptorch.Options().randomSeed(n).logCycleCount(True) for n in SIZES}


def _numbers(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _of(report):
    return report.total_cycles, report.tiles.n_bytes.tolist()


class Classifier(torch.nn.Module):
    """Two layers with random numbers between them, and a loss."""

    def __init__(self, n):
        super().__init__()
        self.first = torch.nn.utils.skip_init(torch.nn.Linear, 3, n)
        self.second = torch.nn.utils.skip_init(torch.nn.Linear, n, 2)
        for i, weight in enumerate(self.parameters()):
            weight.data = torch.from_numpy(_numbers(tuple(weight.shape), i))

    def forward(self, x, labels):
        hidden = torch.nn.functional.dropout(torch.relu(self.first(x)), 0.5)
        with poptorch.Block(f"loss {self.first.out_features}", ipu_id=0):
            result = self.second(hidden)
            return result, torch.nn.functional.cross_entropy(result, labels)


def by_poptorch(n):
    """Steps of training with dropout: results and the cycles of a step."""
    model = Classifier(n)
    options = OPTIONS[n].clone()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    training = poptorch.trainingModel(model, options, optimizer)
    x, labels = torch.from_numpy(_numbers((4, 3), n)), torch.tensor([0, 1, 1, 0])
    losses = [training(x, labels)[1].item() for _ in range(3)]
    return losses, training.cycleCount()


def by_onnx(n):
    """A product and an activation out of an ONNX file."""
    weight = numpy_helper.from_array(_numbers((n, 3), n), "w")
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Tanh", ["h"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, n))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 3))
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], [weight]))
    data = torch.from_numpy(_numbers((2, n), 1))
    compiled = compile_model(import_model(model), {"x": data}, chip="gc2")
    (result,) = compiled(data)
    return result.tolist(), _of(compiled.program.report())


def by_popart(n):
    """An inference session of PopART."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [n], debugContext="x")
    w = builder.addInitializedInputTensor(_numbers(n, n), "w")
    y = builder.aiOnnx.sigmoid([builder.aiOnnx.mul([x, w])])
    builder.addOutputTensor(y)
    flow = popart.DataFlow(1, {y: popart.AnchorReturnType("All")})
    device = popart.DeviceManager().createCpuDevice()
    session = popart.InferenceSession(builder.getModelProto(), flow, device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({"x": _numbers(n, 2)}, anchors))
    return anchors[y].tolist(), session.getSummaryReport()


def by_popxl(n):
    """A graph of PopXL, called twice in a scope of names."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.name_scope(f"scope_{n}"):
        x = popxl.h2d_stream((n,), popxl.float32, "x")
        y = popxl.d2h_stream((n,), popxl.float32, "y")
        double = ir.create_graph(lambda t: t + t, popxl.TensorSpec((n,), popxl.float32))
        (value,) = ops.call(double, ops.host_load(x))
        (value,) = ops.call(double, ops.gelu(value))
        ops.host_store(y, value)
    with popxl.Session(ir) as session:
        result = [session.run({x: _numbers(n, 3)})[y].tolist() for _ in range(2)]
        return result, _of(session.report()), [t.name for t in ir.main_graph.tensors]


def by_keras(n):
    """A model of Keras, trained on one chip or two replicas."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1 + n % 2
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        # With names: Keras counts layers per thread, and programs keep variables in their order.
        layers = [keras.layers.Dense(n, name="first"), keras.layers.Dense(1, name="second")]
        model = keras.Sequential([keras.Input((3,)), *layers], name="model")
        model.set_weights([_numbers(w.shape, 1) for w in model.weights])
        model.compile(loss="mse", optimizer="adam", steps_per_execution=1)
        rows, targets = _numbers((8, 3), n), _numbers((8, 1), n)
        model.fit(rows, targets, batch_size=2, shuffle=False, verbose=0)
    weights = [weight.tolist() for weight in model.get_weights()]
    return weights, model.predict(rows, batch_size=2, verbose=0).tolist(), _of(model.ipu_report())


def by_jax(n):
    """A function of JAX, compiled for tiles."""
    function = tremula.jax.jit(lambda a, b: jnp.sum(jnp.tanh(a @ b), axis=0))
    arrays = _numbers((2, n), 4), _numbers((n, 3), 5)
    return np.asarray(function(*arrays)).tolist(), _of(function.report(*arrays))


FRONT_ENDS = (by_poptorch, by_onnx, by_popart, by_popxl, by_keras, by_jax)


def _run(task):
    function, n = task
    with tremula.configured(chip="gc2"):
        return function(n)


@pytest.mark.slow
def test_threads_compute_what_one_thread_does():
    """Twelve models of six front ends: results, cycles and bytes as one after another."""
    tasks = [(function, n) for n in SIZES for function in FRONT_ENDS]
    with ThreadPoolExecutor(N_THREADS) as pool:
        results = list(pool.map(_run, tasks))  # first: nothing is cached yet
    expected = [_run(task) for task in tasks]
    for (function, n), result, alone in zip(tasks, results, expected, strict=True):
        assert result == alone, f"{function.__name__}({n})"

"""What every front end's compiled programs share: device moves, random state, reports.

Each front end builds three small models: an identity-like one with inputs, one that draws random
numbers, and one whose cycles depend on data (a branch by the sign of its input).
"""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass

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
from tremula.frontends.shared.program import StepProgram
from tremula.ir.run.compiled_step import StepSettings, StepToCompile, compile_step
from tremula.ir.run.session import HostSession
from tremula.ir.run.tile_program import TileSettings
from tremula.keras import ipu
from tremula.runtime.forecast import forecast

import jax  # isort: skip
import jax.numpy as jnp  # isort: skip
import keras  # isort: skip - after tremula.keras, which chooses its backend

N = 16
X = np.linspace(0.5, 2, N).astype(np.float32)


@pytest.fixture(autouse=True)
def _small_chip():
    with tremula.configured(chip="gc2", device="cpu"):
        yield


@dataclass(frozen=True)
class FrontEnd:
    """Builders of models: each returns a function to call with X, and one that gives a report."""

    plain: Callable
    drawing: Callable  # takes a seed
    branching: Callable


# -- PopTorch --------------------------------------------------------------------------------------


class _Torch(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def _poptorch(function, seed=0):
    model = poptorch.inferenceModel(_Torch(function), poptorch.Options().randomSeed(seed))
    return (
        lambda: model(torch.from_numpy(X)).numpy(),
        lambda: model.compiled_program().report(),
    )


def _by_sign(x):
    return poptorch.cond(x.sum() > 0, lambda y: y * 2, [x], lambda y: -y, [x])[0]


POPTORCH = FrontEnd(
    lambda: _poptorch(lambda x: x * 2),
    lambda seed: _poptorch(lambda x: x + torch.randn_like(x), seed),
    lambda: _poptorch(_by_sign),
)


# -- ONNX and PopART -------------------------------------------------------------------------------


def _info(name, shape=(N,)):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _onnx_model(nodes):
    graph = helper.make_graph(nodes, "g", [_info("x")], [_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _onnx(nodes, seed=None):
    data = torch.from_numpy(X)
    compiled = compile_model(import_model(_onnx_model(nodes)), {"x": data}, chip="gc2", seed=seed)

    def call():
        (result,) = compiled(data)
        return result.numpy()

    return call, compiled.program.report


def _doubled(name, to):
    two = numpy_helper.from_array(np.float32(2), f"two_{to}")
    return [
        helper.make_node("Constant", [], [f"two_{to}"], value=two),
        helper.make_node("Mul", [name, f"two_{to}"], [to]),
    ]


def _with_noise(**attributes):
    return [
        helper.make_node("RandomNormalLike", ["x"], ["noise"], **attributes),
        helper.make_node("Add", ["x", "noise"], ["y"]),
    ]


def _branches():
    then = helper.make_graph(_doubled("x", "up"), "then", [], [_info("up")])
    negated = [helper.make_node("Neg", ["x"], ["down"])]
    other = helper.make_graph(negated, "else", [], [_info("down")])
    zero = numpy_helper.from_array(np.float32(0), "zero")
    return [
        helper.make_node("Constant", [], ["zero"], value=zero),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["is_up"]),
        helper.make_node("If", ["is_up"], ["y"], then_branch=then, else_branch=other),
    ]


ONNX = FrontEnd(
    lambda: _onnx(_doubled("x", "y")),
    lambda seed: _onnx(_with_noise(), seed),
    lambda: _onnx(_branches()),
)


def _popart(nodes, seed=0):
    flow = popart.DataFlow(1, {"y": popart.AnchorReturnType("All")})
    device = popart.DeviceManager().acquireAvailableDevice(1)
    proto = _onnx_model(nodes).SerializeToString()
    session = popart.InferenceSession(proto, flow, device)
    session.setRandomSeed(seed)
    session.prepareDevice()

    def call():
        anchors = session.initAnchorArrays()
        session.run(popart.PyStepIO({"x": X}, anchors))
        return anchors["y"].copy()

    return call, session._program.program.report


POPART = FrontEnd(
    lambda: _popart(_doubled("x", "y")),
    lambda seed: _popart(_with_noise(), seed),
    lambda: _popart(_branches()),
)


# -- PopXL -----------------------------------------------------------------------------------------


def _popxl(function):
    ir = popxl.Ir()
    with ir.main_graph:
        x, y = popxl.h2d_stream((N,), popxl.float32, "x"), popxl.d2h_stream((N,), popxl.float32)
        ops.host_store(y, function(ir, ops.host_load(x)))
    session = popxl.Session(ir, "ipu_hw")

    def call():
        with session:
            session.run({x: X})  # interpreted; the second run is compiled
            return session.run({x: X})[y]

    return call, session.report


def _popxl_noise(seed):
    def add_noise(_ir, x):
        state = popxl.constant(np.array([seed, 1], np.uint32))
        return x + ops.random_normal(state, (N,))

    return add_noise


def _popxl_branches(ir, x):
    then, other = (ir.create_graph(f, x) for f in (lambda a: a + a, ops.negate))
    is_up = ops.greater(ops.sum(x), popxl.constant(0.0))
    return ops.conditional(is_up, then, other, [x], [x])[0]


POPXL = FrontEnd(
    lambda: _popxl(lambda _ir, x: x + x),
    lambda seed: _popxl(_popxl_noise(seed)),
    lambda: _popxl(_popxl_branches),
)


# -- Keras -----------------------------------------------------------------------------------------


class _Layer(keras.layers.Layer):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return self.function(x)


class _Noise(keras.layers.Layer):
    def __init__(self, seed):
        super().__init__()
        self.generator = keras.random.SeedGenerator(seed)

    def call(self, x):
        return x + keras.random.normal((1, N), seed=self.generator)


def _keras(layer):
    ipu.config.IPUConfig().configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((N,)), layer])
        model.compile(steps_per_execution=1)
    return lambda: model.predict(X[None], batch_size=1, verbose=0)[0], model.ipu_report


KERAS = FrontEnd(
    lambda: _keras(_Layer(lambda x: x * 2)),
    lambda seed: _keras(_Noise(seed)),
    lambda: _keras(_Layer(_by_sign)),
)


# -- JAX -------------------------------------------------------------------------------------------


def _jax(function):
    compiled = tremula.jax.jit(function)
    return lambda: np.asarray(compiled(X)), lambda: compiled.report(X)


JAX = FrontEnd(
    lambda: _jax(lambda x: x * 2),
    lambda seed: _jax(lambda x: x + jax.random.normal(jax.random.key(seed), x.shape)),
    lambda: _jax(lambda x: jax.lax.cond(x.sum() > 0, lambda y: y * 2, jnp.negative, x)),
)

FRONT_ENDS = {
    "poptorch": POPTORCH, "onnx": ONNX, "popart": POPART, "popxl": POPXL, "keras": KERAS, "jax": JAX
}  # fmt: skip
every_front_end = pytest.mark.parametrize("name", FRONT_ENDS)


# -- the general behaviour -------------------------------------------------------------------------


class _FakeDevice:
    """A stand-in for a GPU: tensors moved to it are copies, which are remembered."""

    def __init__(self, monkeypatch):
        self.device = torch.device("cuda")
        self.moved: list[torch.Tensor] = []
        self.n_runs = 0
        original, run = torch.Tensor.to, HostSession.run

        def to(tensor, *args, **kwargs):
            if args != (self.device,):
                return original(tensor, *args, **kwargs)
            self.moved.append(tensor.clone())
            return self.moved[-1]

        def checked_run(session, inputs, give):
            inside = {tensor.untyped_storage().data_ptr() for tensor in self.moved}
            for row in inputs:
                for tensor in row:
                    assert tensor.untyped_storage().data_ptr() in inside, "an input was not moved"
            self.n_runs += 1
            run(session, inputs, give)

        monkeypatch.setattr(torch.Tensor, "to", to)
        monkeypatch.setattr(HostSession, "run", checked_run)
        monkeypatch.setattr(HostSession, "input_device", self.device)


@every_front_end
def test_inputs_are_moved_to_the_device(name, monkeypatch):
    """A session that reads inputs on a GPU gets all of them there, and computes with them."""
    call, _ = FRONT_ENDS[name].plain()
    device = _FakeDevice(monkeypatch)
    np.testing.assert_allclose(call(), 2 * X)
    assert device.n_runs == 1


@every_front_end
def test_random_numbers_are_the_programs_own(name, monkeypatch):
    """A seed decides them; the script's generator neither changes them nor is changed."""
    results, n_runs, run = [], 0, StepProgram.run

    def checked_run(program, rows, receive):
        nonlocal n_runs
        before, n_runs = torch.get_rng_state(), n_runs + 1
        run(program, rows, receive)
        assert torch.equal(torch.get_rng_state(), before)

    monkeypatch.setattr(StepProgram, "run", checked_run)
    for seed, of_script in ((3, 1), (3, 2), (4, 1)):
        call, _ = FRONT_ENDS[name].drawing(seed)
        torch.manual_seed(of_script)
        results.append(call())
    assert n_runs == len(results)
    np.testing.assert_array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])
    assert not np.array_equal(results[0], X)


def test_seeds_of_onnx_nodes_are_honoured():
    """Without another seed, that of the nodes decides; without any, programs draw differently."""
    same, again, other = (_onnx(_with_noise(seed=seed))[0]() for seed in (1.0, 1.0, 2.0))
    np.testing.assert_array_equal(same, again)
    assert not np.array_equal(same, other)
    assert not np.array_equal(_onnx(_with_noise())[0](), _onnx(_with_noise())[0]())


@every_front_end
def test_reports_of_programs_whose_cycles_depend_on_data(name):
    """Such a program runs once for its report, which leaves its results as they were."""
    call, report = FRONT_ENDS[name].branching()
    np.testing.assert_allclose(call(), 2 * X)
    first, second = report(), report()
    assert first.total_cycles == second.total_cycles > 0
    assert first.tiles.n_bytes.sum() > 0
    np.testing.assert_allclose(call(), 2 * X)


def _program(function, *inputs, **settings):
    model = _Torch(function)
    names = [f"x{i}" for i in range(len(inputs))]
    request = StepToCompile(model, lambda flat: ([model(*flat)], None), list(inputs), names)
    return StepProgram(compile_step(request, StepSettings(**settings)))


def test_a_report_runs_with_the_inputs_it_is_given():
    """Of two branches, inputs choose the one whose cycles are reported."""

    def slow_or_fast(x):
        def slow(y):
            for _ in range(20):
                y = torch.sin(y) * 2
            return y

        return poptorch.cond(x.sum() > 0, slow, [x], lambda y: -y, [x])[0]

    x = torch.from_numpy(X)
    program = _program(slow_or_fast, x)
    assert program.report([[x]]).total_cycles > program.report([[-x]]).total_cycles
    assert program.report().total_cycles == program.report([[-x]]).total_cycles  # zeros


def test_a_report_without_branches_is_a_forecast():
    """Nothing runs: the report is that of the executable alone."""
    program = _program(lambda x: x * 2, torch.from_numpy(X))
    assert program.report().total_cycles == forecast(program.executable).total_cycles
    assert program.n_calls == 0


def test_written_inputs_reach_the_caller(monkeypatch):
    """What a step writes to a moved copy is written to the caller's tensor, too."""
    program = _program(lambda x: x.add_(1), torch.from_numpy(X.copy()))
    _FakeDevice(monkeypatch)
    x = torch.zeros(N)
    ((result,),) = program.call([[x]])
    assert result.tolist() == [1] * N
    assert x.tolist() == [1] * N


class _Lease:
    def __init__(self):
        self.events = []

    @contextmanager
    def running(self, tiles):
        assert tiles is not None
        self.events.append("busy")
        yield
        self.events.append("free")


def test_a_leased_device_is_busy_during_a_call():
    """A call begins and ends the lease's busy time once."""
    program = _program(lambda x: x * 2, torch.from_numpy(X))
    program.device = _Lease()
    program.call([[torch.from_numpy(X)]])
    assert program.device.events == ["busy", "free"]
    assert program.n_calls == 1


def test_a_report_is_saved_with_its_summary(tmp_path):
    """The folder has the report for the analyser and the summary as text."""
    program = _program(lambda x: x * 2, torch.from_numpy(X), tiles=TileSettings(n_tiles=4))
    path = program.save_report(tmp_path / "new", "doubling")
    assert path.is_file()
    assert "cycles" in (tmp_path / "new" / "profile.txt").read_text(encoding="utf-8")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_front_end
def test_calls_on_a_gpu(name):
    """Every front end computes on a GPU, one kernel after another."""
    with tremula.configured(device="cuda", host="eager"):
        call, _ = FRONT_ENDS[name].plain()
        np.testing.assert_allclose(call(), 2 * X)

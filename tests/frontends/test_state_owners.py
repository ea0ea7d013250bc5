"""Optimiser states are placed with their weights, whichever front end described the training."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import popart
import poptorch
import popxl
import tremula
import tremula.jax
from popxl import ops
from tremula.compiler.compile import compile_graph
from tremula.frontends.keras.config import reset_ipu_configuration
from tremula.frontends.keras.optimiser import rule_of
from tremula.frontends.poptorch.optim.rule import rule_from
from tremula.ir.lowering.program.build import BuiltProgram
from tremula.ir.run import tile_program
from tremula.ir.step import PARAMETER, STATE, CapturedStep
from tremula.keras import ipu
from tremula.poplar.programs import Sequence
from tremula.runtime.forecast import forecast

import keras  # isort: skip - after tremula.keras, which chooses its backend

N_ROWS, N_IN, N_HIDDEN, N_OUT = 8, 24, 32, 16
N_TILES, N_ACCUMULATION = 4, 4
LR, MOMENTUM = 0.1, 0.9
RNG = np.random.default_rng(5)
W1 = RNG.standard_normal((N_IN, N_HIDDEN)).astype(np.float32)
W2 = RNG.standard_normal((N_HIDDEN, N_OUT)).astype(np.float32)
X = RNG.standard_normal((N_ROWS * N_ACCUMULATION, N_IN)).astype(np.float32)
LABELS = RNG.integers(0, N_OUT, len(X)).astype(np.int32)


@dataclass(frozen=True)
class Built:
    """A step after the passes for tiles, and the graph that it was lowered to."""

    step: CapturedStep
    program: BuiltProgram

    def tensors(self, kind: str) -> dict:
        """The tensors of one kind that stay on the chips, by slot."""
        reads = self.program.graph.state.handles.reads
        return {
            slot: reads[self.program.state_handles[kind, slot.index].handle]
            for _, slot in self.step.of_kind(kind)
        }

    def chip_of(self, tensor) -> int:
        (chip,) = set((self.program.graph.get_tile_mapping(tensor).tile // N_TILES).tolist())
        return chip

    def states_by_chip(self) -> list[tuple[int, tuple[int, ...]]]:
        """Chips and shapes of the states with more than one element."""
        states = self.tensors(STATE).values()
        return sorted((self.chip_of(t), tuple(t.shape)) for t in states if t.n_elems > 1)

    def report(self):
        return forecast(compile_graph(self.program.graph, [Sequence(self.program.program)], {}))


@pytest.fixture
def built(monkeypatch):
    """What front ends lower to tiles during a test."""
    result = []
    build = tile_program.build_tile_program

    def build_and_note(step, *args):
        result.append(Built(step, build(step, *args)))
        return result[-1].program

    monkeypatch.setattr(tile_program, "build_tile_program", build_and_note)
    with tremula.configured(tiles="run"):
        yield result


# -- a model of two layers on two chips, by SGD with momentum --------------------------------------


def poptorch_pipeline(monkeypatch):
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = (nn.Parameter(torch.from_numpy(w)) for w in (W1, W2))

        def forward(self, x, labels):
            with poptorch.Block("a", ipu_id=0):
                x = torch.relu(x @ self.first)
            with poptorch.Block("b", ipu_id=1):
                x = x @ self.second
                return x, nn.functional.cross_entropy(x, labels)

    options = poptorch.Options()
    options.Training.gradientAccumulation(N_ACCUMULATION)
    options.setExecutionStrategy(
        poptorch.PipelinedExecution(poptorch.Stage("a").ipu(0), poptorch.Stage("b").ipu(1))
    )
    model = Model()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    poptorch.trainingModel(model, options, optimizer).compile(
        torch.from_numpy(X), torch.from_numpy(LABELS.astype(np.int64))
    )


def popart_pipeline(_monkeypatch):
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [N_ROWS, N_IN], "x")
    labels = builder.addInputTensor("INT32", [N_ROWS], "labels")
    weights = [builder.addInitializedInputTensor(w, n) for n, w in (("w1", W1), ("w2", W2))]
    product = builder.aiOnnx.matmul([x, weights[0]])
    hidden = builder.aiOnnx.relu([product])
    scores = builder.aiOnnx.matmul([hidden, weights[1]])
    scaled = builder.aiOnnx.softmax([scores], 1)
    loss = builder.aiGraphcore.nllloss([scaled, labels], popart.ReductionType.Mean)
    builder.virtualGraph([product, hidden], 0)
    builder.virtualGraph([scores, scaled, loss], 1)
    options = popart.SessionOptions()
    options.virtualGraphMode = popart.VirtualGraphMode.Manual
    options.enablePipelining = True
    options.enableGradientAccumulation = True
    options.accumulationFactor = N_ACCUMULATION
    numbers = {"defaultLearningRate": (LR, True), "defaultMomentum": (MOMENTUM, True)}
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, {scores: popart.AnchorReturnType("All")}),
        loss,
        popart.SGD(numbers, accumulatorAndMomentum=popart.SGDAccumulatorAndMomentum.Separate),
        popart.DeviceManager().createIpuModelDevice({"numIPUs": 2, "tilesPerIPU": N_TILES}),
        userOptions=options,
    )
    session.prepareDevice()


def keras_pipeline(_monkeypatch):
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.ipu_model.tiles_per_ipu = N_TILES
    config.configure_ipu_system()
    try:
        with ipu.ipu_strategy.IPUStrategy().scope():
            inputs = keras.Input((N_IN,))
            with ipu.PipelineStage(0):
                hidden = keras.layers.Dense(N_HIDDEN, "relu", use_bias=False)(inputs)
            with ipu.PipelineStage(1):
                scores = keras.layers.Dense(N_OUT, use_bias=False)(hidden)
            model = keras.Model(inputs, scores)
            model.compile(
                keras.optimizers.SGD(LR, MOMENTUM),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                steps_per_execution=N_ACCUMULATION,
            )
            model.set_pipelining_options(N_ACCUMULATION)
            model.fit(X, LABELS, batch_size=N_ROWS, verbose=0)
    finally:
        reset_ipu_configuration()


PIPELINES = {"poptorch": poptorch_pipeline, "popart": popart_pipeline, "keras": keras_pipeline}


@pytest.mark.parametrize("front_end", PIPELINES)
def test_states_in_a_pipeline_are_with_their_weights(built, front_end, monkeypatch):
    """Each velocity is on the chip and the tiles of its weight, in the same order."""
    PIPELINES[front_end](monkeypatch)
    (result,) = built
    weights = {slot.name: tensor for slot, tensor in result.tensors(PARAMETER).items()}
    states = {slot: t for slot, t in result.tensors(STATE).items() if t.n_elems > 1}
    assert sorted(slot.owner for slot in states) == sorted(weights)
    for slot, state in states.items():
        weight = weights[slot.owner]
        assert state.shape == weight.shape
        mapping = result.program.graph.get_tile_mapping
        assert mapping(state) == mapping(weight)
    assert result.states_by_chip() == [(0, (N_IN, N_HIDDEN)), (1, (N_HIDDEN, N_OUT))]


def test_pipelines_of_all_front_ends_cost_the_same(built, monkeypatch):
    """Memory of every tile, and cycles, differ by the forms of the loss and the update alone."""
    reports = []
    for describe in PIPELINES.values():
        describe(monkeypatch)
        reports.append(built[-1].report())
    for report in reports[1:]:
        assert_close_costs(report, reports[0], memory=0.02, cycles=0.25)
        assert report.total_cycles == pytest.approx(reports[0].total_cycles, rel=0.1)
        here, there = (
            r.bytes_by_category()["Variables"].reshape(-1, N_TILES) for r in (report, reports[0])
        )
        # On tiles as small as these, where the plan puts an input counts: a tenth of the mean.
        assert (abs(here - there) <= 0.1 * there.mean(axis=1, keepdims=True)).all()


# -- the same model on one chip --------------------------------------------------------------------


def poptorch_step():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = (nn.Parameter(torch.from_numpy(w)) for w in (W1, W2))

        def forward(self, x, labels):
            scores = torch.relu(x @ self.first) @ self.second
            return scores, nn.functional.cross_entropy(scores, labels)

    model = Model()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    inputs = torch.from_numpy(X[:N_ROWS]), torch.from_numpy(LABELS[:N_ROWS])
    poptorch.trainingModel(model, poptorch.Options(), optimizer).compile(*inputs)


def popxl_step():
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence(True):
        x, labels = popxl.variable(X[:N_ROWS]), popxl.variable(LABELS[:N_ROWS])
        weights = [popxl.variable(w) for w in (W1, W2)]
        states = [popxl.variable(np.zeros_like(w)) for w in (W1, W2)]

        def loss(x, labels, first, second):
            scores = ops.relu(x @ first) @ second
            return ops.nll_loss(ops.softmax(scores, 1), labels)

        graph = ir.create_graph(loss, x, labels, *weights)
        backward = popxl.transforms.autodiff(graph, grads_required=graph.inputs[2:])
        info = ops.call_with_info(graph, x, labels, *weights)
        grads = ops.call(
            backward.graph,
            popxl.constant(1.0),
            inputs_dict=backward.inputs_dict(info),
        )
        for weight, state, grad in zip(weights, states, grads, strict=True):
            ops.scaled_add_(state, grad, a=MOMENTUM)
            ops.scaled_add_(weight, state, b=-LR)
    device = popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": N_TILES})
    with popxl.Session(ir, device) as session:
        session.run()


def jax_step():
    def loss(weights, x, labels):
        scores = jax.nn.relu(x @ weights[0]) @ weights[1]
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1).mean()

    @tremula.jax.jit
    def step(weights, states, x, labels):
        grads = jax.grad(loss)(weights, x, labels)
        states = [MOMENTUM * s + g for s, g in zip(states, grads, strict=True)]
        return [w - LR * s for w, s in zip(weights, states, strict=True)], states

    step([W1, W2], [np.zeros_like(W1), np.zeros_like(W2)], X[:N_ROWS], LABELS[:N_ROWS])


@pytest.mark.slow
def test_functions_that_update_cost_what_a_rule_costs(built, monkeypatch):
    """PopXL and JAX, which hold states as they hold weights, take PopTorch's memory and cycles."""
    for step, is_small in ((popxl_step, True), (jax_step, False)):
        monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", str(int(is_small)))
        poptorch_step()
        step()
        theirs, ours = (each.report() for each in built[-2:])
        assert ours.target.n_tiles == theirs.target.n_tiles
        assert_close_costs(ours, theirs, memory=0.15, cycles=0.3)


def assert_close_costs(ours, theirs, *, memory: float, cycles: float) -> None:
    """Bytes of variables and cycles of compute sets differ by these shares at most."""
    variables = [int(r.bytes_by_category()["Variables"].sum()) for r in (ours, theirs)]
    assert variables[0] == pytest.approx(variables[1], rel=memory)
    compute = [r.phases_of_chip[:, 0].max() for r in (ours, theirs)]
    assert compute[0] == pytest.approx(compute[1], rel=cycles)


# -- owners in the names of Keras and of weights ---------------------------------------------------


def with_momenta(name: str):
    """A Keras optimiser with as many states as its options allow."""
    options = {"SGD": {"momentum": 0.9}, "RMSprop": {"centered": True, "momentum": 0.9}}
    return getattr(keras.optimizers, name)(**options.get(name, {}), use_ema=True)


@pytest.mark.parametrize(
    "name",
    ["SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adafactor", "Adagrad", "Adamax", "Ftrl",
     "Lamb", "Lion", "Muon", "Nadam"],
)  # fmt: skip
def test_states_of_keras_optimisers_have_owners(name):
    """Every state that an optimiser holds for a weight is known to belong to it."""
    variables = [
        keras.Variable(np.zeros(shape, np.float32), name=f"w{i}")
        for i, shape in enumerate(((3, 4), (5,), (3, 4)))
    ]
    optimizer = with_momenta(name)
    optimizer.build(variables)
    rule = rule_of(optimizer, variables, ["a", "b", "c"])
    by_owner = {
        owner: [
            v for v, o in zip(rule.state_variables, rule.state_owners(), strict=True) if o == owner
        ]
        for owner in (None, "a", "b", "c")
    }
    assert all(math.prod(v.shape) == 1 for v in by_owner[None])
    for owner, weight in zip("abc", variables, strict=True):
        assert any(tuple(v.shape) == tuple(weight.shape) for v in by_owner[owner])
        assert all(
            tuple(v.shape) == tuple(weight.shape) or v.path.endswith(weight.name)  # Adafactor's
            for v in by_owner[owner]
        )
    assert len(by_owner["a"]) == len(by_owner["c"])


def test_states_of_wrapped_keras_optimisers_have_owners():
    """Also inside an optimiser that scales the loss, for weights that share a name."""
    variables = [keras.Variable(np.zeros(3, np.float32), name="w") for _ in range(2)]
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())
    optimizer.build(variables)
    rule = rule_of(optimizer, variables, ["w", "w#2"])
    owners = [owner for owner in rule.state_owners() if owner is not None]
    assert owners == ["w", "w", "w#2", "w#2"]
    assert len(rule.state_owners()) == len(rule.state_names()) == len(rule.state_variables)


def test_kinds_of_states_are_known_whatever_their_names():
    """Momenta of two weights are two kinds in PyTorch's Adam and in Keras', with the same weights.

    A GPU's backends are compared kind by kind: one small velocity may be all rounding.
    """
    model = nn.ParameterDict({"a___b": torch.zeros(3), "b": torch.zeros(3)})
    ours = rule_from(torch.optim.Adam(model.parameters()), model.named_parameters())
    variables = [keras.Variable(np.zeros(3, np.float32), name=name) for name in ("a", "b")]
    optimizer = keras.optimizers.Adam()
    optimizer.build(variables)
    for rule in (ours, rule_of(optimizer, variables, ["a___b", "b"])):
        weights_of: dict[str, list[str]] = {}
        for kind, owner in zip(rule.state_kinds(), rule.state_owners(), strict=True):
            weights_of.setdefault(kind, []).extend([owner] if owner else [])
        assert list(weights_of.values()).count(["a___b", "b"]) >= 2, weights_of
        assert all(owners in (["a___b", "b"], []) for owners in weights_of.values())


@pytest.mark.parametrize("name", ["a___b", "___", "Accl1___a"])
def test_weights_with_underscores_in_their_names(name):
    """A weight's name may look like that of a state."""
    model = nn.ParameterDict({name: torch.zeros(3), "b": torch.zeros(3)})
    rule = rule_from(torch.optim.Adam(model.parameters()), model.named_parameters())
    assert rule.state_owners() == (name, "b") * 3
    assert rule.restricted([1]).state_owners() == ("b",) * 3

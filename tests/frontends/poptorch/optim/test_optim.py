"""poptorch.optim: arguments, variable attributes, states, copies; what setOptimizer may change."""

import copy
import io
import logging
import pickle

import pytest
import torch

from tremula.frontends.poptorch.exceptions import Error
from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.optim import optimizers as optim
from tremula.frontends.poptorch.optim.rule import hyper_values, rule_from
from tremula.frontends.poptorch.optim.tracker import OptimizerTracker
from tremula.ir.optim.in_place import update_in_place

ALL = [optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.LAMB]
OF_TORCH = [optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop]


@pytest.fixture(autouse=True)
def log(logged):
    """What PopTorch's logger says, whatever handlers it has."""
    level = LOGGER.level
    LOGGER.addHandler(logged)
    LOGGER.setLevel(logging.DEBUG)
    yield logged
    LOGGER.removeHandler(logged)
    LOGGER.setLevel(level)


def make_model():
    torch.manual_seed(0)
    return torch.nn.Linear(3, 2)


def warnings_in(log):
    return [r.getMessage() for r in log.records if r.levelno >= logging.WARNING]


def run_on_cpu(model, optimizer, n_steps=4):
    for step in range(n_steps):
        for k, p in enumerate(model.parameters()):
            p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(10 * step + k))
        optimizer.step()


def run_rule(model, optimizer, n_steps=4):
    """Steps by the rule of the optimiser, as the IPU computes them."""
    rule = rule_from(optimizer, model.named_parameters())
    weights = [p.detach() for p in model.parameters()]
    states = rule.initial_state(weights)
    scaling = getattr(optimizer, "loss_scaling", 1.0)
    for step in range(n_steps):
        grads = [
            scaling * torch.randn(p.shape, generator=torch.Generator().manual_seed(10 * step + k))
            for k, p in enumerate(weights)
        ]
        update_in_place(rule, weights, grads, states, None, hyper_values(rule, optimizer))
    return rule, states


@pytest.mark.parametrize("cls", OF_TORCH)
def test_bases(cls):
    """Each class is torch's of the same name, after PopTorch's own base."""
    assert cls.__bases__ == (optim.Optimizer, getattr(torch.optim, cls.__name__))


@pytest.mark.parametrize("cls", ALL)
@pytest.mark.parametrize("extra", [{}, {"weight_decay": 0.1, "loss_scaling": 64.0}])
def test_cpu_step_and_ipu_update_agree(cls, extra):
    """step() on the CPU and the update of the IPU change weights alike."""
    cpu, ipu = make_model(), make_model()
    run_on_cpu(cpu, cls(cpu.parameters(), lr=0.05, **extra))
    run_rule(ipu, cls(ipu.parameters(), lr=0.05, **extra))
    for a, b in zip(cpu.parameters(), ipu.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_adamw_corrects_the_bias_either_way():
    """AdamW(bias_correction=False) updates as torch.optim.AdamW does, as PopTorch did."""
    cpu, ipu = make_model(), make_model()
    run_on_cpu(cpu, torch.optim.AdamW(cpu.parameters(), lr=0.1))
    rule, _ = run_rule(ipu, optim.AdamW(ipu.parameters(), lr=0.1, bias_correction=False))
    assert rule.formula.variant == "ADAMW_NO_BIAS"
    torch.testing.assert_close(cpu.weight, ipu.weight)


@pytest.mark.parametrize("bias_correction", [True, False])
def test_lamb_against_its_definition(bias_correction):
    """LAMB moves a weight by lr · min(‖w‖, max) / ‖direction‖ · direction."""
    model = make_model()
    weight = model.weight.detach().double()
    make = {"lr": 0.1, "bias_correction": bias_correction, "max_weight_norm": 0.4}
    optimizer = optim.LAMB(model.parameters(), **make)
    mean = square = torch.zeros_like(weight)
    for step in range(1, 4):
        grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(10 * (step - 1)))
        mean, square = 0.9 * mean + 0.1 * grad, 0.999 * square + 0.001 * grad.double() ** 2
        c1, c2 = (1 - 0.9**step, 1 - 0.999**step) if bias_correction else (1, 1)
        direction = mean / c1 / ((square / c2).sqrt() + 1e-8) + 0.01 * weight
        weight = weight - 0.1 * min(weight.norm(), 0.4) / direction.norm() * direction
    run_rule(model, optimizer, n_steps=3)
    torch.testing.assert_close(model.weight.double(), weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weights", [0.0, 1.0])
def test_lamb_trusts_where_a_norm_is_zero(weights):
    """A weight of norm 0, or a direction of norm 0, has a trust ratio of 1 and stays finite."""
    model = make_model()
    for p in model.parameters():
        p.data.fill_(weights)
    optimizer = optim.LAMB(model.parameters(), lr=0.1, weight_decay=0.0)
    rule = rule_from(optimizer, model.named_parameters())
    params = [p.detach() for p in model.parameters()]
    grads = [torch.full_like(p, 1.0 - weights) for p in params]
    update_in_place(
        rule, params, grads, rule.initial_state(params), None, hyper_values(rule, optimizer)
    )
    expected = -0.1 if weights == 0 else 1.0
    assert all(torch.allclose(p, torch.tensor(expected), atol=1e-5) for p in params)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize("centered", [False, True])
def test_rmsprop_tf_variant(momentum, centered):
    """TensorFlow's RMSprop: mean square from 1, eps inside the root, lr inside the momentum."""
    model = make_model()
    weight = model.weight.detach().clone()
    square, mean, velocity = torch.ones_like(weight), torch.zeros(2, 3), torch.zeros(2, 3)
    for step in range(4):
        grad = torch.randn(weight.shape, generator=torch.Generator().manual_seed(10 * step))
        square, mean = 0.99 * square + 0.01 * grad**2, 0.99 * mean + 0.01 * grad
        variance = square - mean**2 if centered else square
        velocity = momentum * velocity + 0.1 * grad / (variance + 1e-2).sqrt()
        weight = weight - velocity
    make = {"lr": 0.1, "eps": 1e-2, "momentum": momentum, "centered": centered}
    run_rule(model, optim.RMSprop(model.parameters(), use_tf_variant=True, **make))
    torch.testing.assert_close(model.weight.detach(), weight, rtol=1e-5, atol=1e-6)


def test_half_states():
    """Momenta are stored in the type asked for; weights keep theirs."""
    model = make_model()
    make = {"accum_type": torch.half, "first_order_momentum_accum_type": torch.half}
    rule, states = run_rule(model, optim.Adam(model.parameters(), lr=0.1, **make))
    dtypes = dict(zip(rule.state_names(), [s.dtype for s in states], strict=True))
    assert dtypes["Accl1___weight"] == torch.half
    assert dtypes["Accl2___weight"] == dtypes["Step___weight"] == torch.float32
    assert model.weight.dtype == torch.float32
    other = make_model()
    run_on_cpu(other, torch.optim.Adam(other.parameters(), lr=0.1))
    torch.testing.assert_close(model.weight, other.weight, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("cls", ALL)
def test_accumulation_types(cls):
    """Accumulators are half or float."""
    with pytest.raises(AssertionError, match="Accumulation types must be either"):
        cls(make_model().parameters(), lr=0.1, accum_type=torch.float64)


def test_velocity_scaling(log):
    """It is a group attribute of combined SGD, and ignored with a warning otherwise."""
    params = list(make_model().parameters())
    combined = optim.SGD(params, lr=0.1, velocity_scaling=2.0, use_combined_accum=True)
    assert combined.param_groups[0]["velocity_scaling"] == 2.0
    assert not warnings_in(log)
    separate = optim.SGD(params, lr=0.1, velocity_scaling=2.0)
    assert "velocity_scaling" not in separate.param_groups[0]
    assert "velocity_scaling value ignored" in warnings_in(log)[0]


def test_variable_attributes():
    """What was given is variable, the rest constant; marks change that, for known names."""
    opt = optim.Adam(make_model().parameters(), lr=0.1, betas=(0.9, 0.999))
    attrs = opt.variable_attrs
    assert [attrs.isConstant(a) for a in ("lr", "betas", "eps", "loss_scaling")] == [
        False, False, True, True,
    ]  # fmt: skip
    attrs.markAsVariable("loss_scaling")
    attrs.markAsConstant("betas")
    assert not attrs.isConstant("loss_scaling")
    assert attrs.isConstant("betas")
    assert "loss_scaling" in attrs._allowed_attributes
    with pytest.raises(AssertionError, match="Unknown attribute momentum, allowed values"):
        attrs.markAsVariable("momentum")
    rule = rule_from(opt, [])
    assert rule.hyper_names == ("lr_group0", "loss_scaling")


def test_all_variable_sgd_has_a_velocity():
    """Plain SGD has no state; once its momentum is variable, it keeps a velocity per parameter."""
    model = make_model()
    opt = optim.SGD(model.parameters(), lr=0.1)
    assert rule_from(opt, model.named_parameters()).state_names() == ()
    opt.variable_attrs._variable_attributes = list(opt.variable_attrs._allowed_attributes)
    rule, states = run_rule(model, opt)
    assert "Accl1___weight" in rule.state_names()
    assert all(s.any() for s in states)
    other = make_model()
    run_on_cpu(other, torch.optim.SGD(other.parameters(), lr=0.1))
    torch.testing.assert_close(model.weight, other.weight)


@pytest.mark.parametrize("cls", ALL)
def test_state_dict(cls):
    """state_dict is torch's plus two entries, None at first; a loaded state must have them."""
    model = make_model()
    opt = cls(model.parameters(), lr=0.1)
    state = opt.state_dict()
    assert state["ipu_state"] is None
    assert state["ipu_param"] is None
    assert state["param_groups"][0]["lr"] == 0.1
    assert not opt.has_state()
    assert not opt.ipu_state_is_dirty
    state["ipu_state"], state["ipu_param"] = {"Accl1___weight": torch.ones(2, 3)}, {}
    state["param_groups"][0]["lr"] = 0.7
    opt.load_state_dict(state)
    assert opt.has_state()
    assert opt.ipu_state_is_dirty
    assert not opt.host_state_is_dirty
    assert opt.param_groups[0]["lr"] == 0.7
    assert opt.state_dict()["ipu_state"] is state["ipu_state"]


def test_state_that_is_none_of_an_ipu():
    """A state of torch's own optimiser, or none, cannot be loaded."""
    model = make_model()
    opt = optim.Adam(model.parameters())
    with pytest.raises(RuntimeError, match="Only IPU optimizer states can be loaded onto the IPU"):
        opt.load_state_dict(torch.optim.Adam(model.parameters()).state_dict())
    with pytest.raises(RuntimeError, match="because it is empty"):
        opt.load_state_dict({})


@pytest.mark.parametrize("cls", ALL)
def test_copies_keep_everything(cls):
    """copy, deepcopy, pickle and torch.save keep the attributes that torch does not know."""
    opt = cls(make_model().parameters(), lr=0.3, loss_scaling=8.0)
    buffer = io.BytesIO()
    torch.save(opt, buffer)
    buffer.seek(0)
    copies = [
        copy.copy(opt),
        copy.deepcopy(opt),
        pickle.loads(pickle.dumps(opt)),
        torch.load(buffer, weights_only=False),
    ]
    for other in copies:
        assert other.loss_scaling == 8.0
        assert not other.variable_attrs.isConstant("loss_scaling")
        assert other.accum_type == torch.float32
        assert other.state_dict()["ipu_state"] is None
        assert rule_from(other, []) == rule_from(opt, [])


def test_learning_rate_scheduler(log):
    """torch's schedulers work on them, and what a scheduler adds before the first use is known."""
    model = make_model()
    opt = optim.Adam(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
    tracker = OptimizerTracker()
    rule = tracker.start(opt, model.named_parameters())
    run_on_cpu(model, opt, n_steps=1)
    scheduler.step()
    assert tracker.changed(opt, ()) == [0.5]
    assert rule.hyper_names == ("lr_group0",)
    assert not warnings_in(log)


def test_newer_torch_arguments():
    """Keyword arguments that torch gained later are passed on."""
    opt = optim.SGD(make_model().parameters(), lr=0.1, fused=True)
    assert opt.param_groups[0]["fused"] is True


def test_equal_optimizers_change_nothing(log):
    """Optimisers that say the same, torch's or PopTorch's, cause no update."""
    params = list(make_model().parameters())
    tracker = OptimizerTracker()
    tracker.start(torch.optim.SGD(params, lr=1.0, momentum=0.0), [])
    log.clear()
    assert tracker.changed(torch.optim.SGD(params, lr=1.0), ()) is None
    assert tracker.changed(optim.SGD(params, lr=1.0), ()) is None
    marked = optim.SGD(params, lr=1.0, momentum=0.0, weight_decay=0.0)
    marked.variable_attrs.markAsConstant("momentum")
    marked.variable_attrs.markAsConstant("weight_decay")
    assert tracker.changed(marked, ()) is None
    assert not log.records
    assert tracker.changed(optim.SGD(params, lr=0.5), ()) == [0.5]


@pytest.mark.parametrize("cls", ALL)
def test_constants_cannot_change(cls):
    """A constant attribute that changes after compilation is an error; a variable one is not."""
    params = list(make_model().parameters())
    opt = cls(params, lr=1.0)
    tracker = OptimizerTracker()
    tracker.start(opt, [])
    opt.loss_scaling = 2.0
    with pytest.raises(
        Error, match="Constant optimizer attributes cannot change after compilation"
    ):
        tracker.changed(opt, ())
    opt = cls(params, lr=1.0, loss_scaling=1.0)
    tracker = OptimizerTracker()
    tracker.start(opt, [])
    opt.loss_scaling = 2.0
    assert tracker.changed(opt, ()) == [1.0, 2.0]


def test_facts_cannot_change():
    """What the program is built from stays: types of accumulators, the class, the groups."""
    model = make_model()
    params = list(model.parameters())
    tracker = OptimizerTracker()
    opt = optim.Adam(params, lr=0.5)
    tracker.start(opt, model.named_parameters())
    opt.accum_type = torch.half
    with pytest.raises(ValueError, match="is already compiled"):
        tracker.changed(opt, ())
    with pytest.raises(ValueError, match="kind is adam; it cannot become sgd"):
        tracker.changed(optim.SGD(params, lr=0.5), ())
    with pytest.raises(Error, match="optimizer of 1 parameter groups, the new one has 2"):
        tracker.changed(optim.Adam([{"params": params[:1]}, {"params": params[1:]}], lr=0.5), ())


def test_members_of_groups_cannot_change():
    """A parameter that moves to another group is an error that names it."""
    model = make_model()
    weight, bias = model.parameters()
    tracker = OptimizerTracker()
    tracker.start(
        optim.SGD([{"params": [weight]}, {"params": [bias]}], lr=1.0), model.named_parameters()
    )
    other = optim.SGD([{"params": [bias]}, {"params": [weight]}], lr=1.0)
    with pytest.raises(Error, match="Parameter weight was compiled as a member of group 0"):
        tracker.changed(other, model.named_parameters())


def test_unexpected_attributes(log):
    """New attributes are warned about once each; those that were there at first use are not."""
    opt = optim.SGD(make_model().parameters(), lr=0.01, loss_scaling=2.0)
    opt.from_the_start = 1
    tracker = OptimizerTracker()
    tracker.start(opt, [])
    assert tracker.changed(opt, ()) is None
    assert not warnings_in(log)
    opt.step = 0
    opt.param_groups[0]["initial_lr"] = 0.1
    opt.loss_scaling = 3.0
    assert tracker.changed(opt, ()) == [0.01, 3.0]
    assert warnings_in(log) == [
        "Ignoring unexpected optimizer attribute in SGD2 optimizer: ['step']",
        "Ignoring unexpected group 0 attribute in SGD2 optimizer: ['initial_lr']",
    ]
    log.clear()
    tracker.changed(opt, ())
    assert not warnings_in(log)


def test_relaxed_checks(log):
    """With relaxed checks unexpected attributes are a debug message."""
    opt = optim.SGD(make_model().parameters(), lr=0.01)
    tracker = OptimizerTracker(relax_checks=True)
    tracker.start(opt, [])
    opt.step = 0
    tracker.changed(opt, ())
    assert not warnings_in(log)
    assert "unexpected optimizer attribute" in log.text


def test_subclasses(log):
    """A subclass of any class is used as that class, with a warning; PopTorch's own are not."""

    class Mine(optim.SGD):
        pass

    for cls in ALL:
        OptimizerTracker().note(cls(make_model().parameters(), lr=0.1))
    OptimizerTracker().note(torch.optim.Adagrad(make_model().parameters()))  # rejected later
    assert not warnings_in(log)
    OptimizerTracker().note(Mine(make_model().parameters(), lr=0.1))
    assert "Poptorch does not run Python optimizer code directly" in warnings_in(log)[0]


def test_log_of_settings(log):
    """At level DEBUG the log shows every number, and whether it is constant."""
    opt = optim.SGD(make_model().parameters(), lr=0.01, loss_scaling=2.0, momentum=0.5)
    OptimizerTracker().start(opt, [])
    graph, group = [r.getMessage() for r in log.records]
    assert graph.startswith("Updating graph optimizer with SGD2: accumType=float32, ")
    assert "defaultLearningRate=0.01, defaultMomentum=0.5, defaultDampening=0 (const), " in graph
    assert "defaultVelocityScaling=2" in graph
    assert graph.endswith("lossScaling=2")
    assert group.startswith("Updating group 0 optimizer with SGD2: learningRate=0.01, ")


def test_public_names():
    """`poptorch.optim` has the names that scripts import."""
    import importlib.util
    from pathlib import Path

    import tremula

    path = Path(tremula.__file__).parent / "names" / "poptorch" / "optim.py"
    spec = importlib.util.spec_from_file_location("poptorch_optim_alone", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert all(getattr(module, name) is getattr(optim, name) for name in module.__all__)

"""Weight updates: the functional and the in-place form against torch.optim, for many settings."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tremula.frontends.poptorch.optim.names import hyper_from_ipu_params, ipu_params
from tremula.frontends.poptorch.optim.rule import changed_constants, hyper_values, rule_from
from tremula.frontends.poptorch.optim.settings import settings_of, warn_about_subclass
from tremula.ir.optim.in_place import update_in_place

SHAPES = [(3, 4), (5,), (), (2, 3, 2)]
N_STEPS = 5


def make_parameters(seed=0, shapes=SHAPES, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in shapes
    ]


def make_gradients(params, step):
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(p.shape, generator=generator).to(p.dtype) for p in params]


def named(params):
    return [(f"w{i}", p) for i, p in enumerate(params)]


def run_torch(make_optimizer, n_steps=N_STEPS, max_norm=None):
    params = make_parameters()
    optimizer = make_optimizer(params)
    for step in range(n_steps):
        for p, g in zip(params, make_gradients(params, step), strict=True):
            p.grad = g
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(params, max_norm)
        optimizer.step()
    return [p.detach() for p in params]


def run_rule(make_optimizer, how, n_steps=N_STEPS, loss_scaling=1.0, attributes=None):
    """Weights after some steps; `how` is "functional", "in place" or "tensors"."""
    params = make_parameters()
    optimizer = make_optimizer(params)
    for name, value in (attributes or {}).items():
        setattr(optimizer, name, value)
    rule = rule_from(optimizer, named(params))
    weights = [p.detach().clone() for p in params]
    states = rule.initial_state(weights)
    for step in range(n_steps):
        grads = [g * loss_scaling for g in make_gradients(weights, step)]
        floats = hyper_values(rule, optimizer)
        tensors = [torch.tensor(value) for value in floats]
        if how == "functional":
            weights, states = rule.update(weights, grads, states, tensors)
        else:
            update_in_place(
                rule, weights, grads, states, tensors, None if how == "tensors" else floats
            )
    return weights


def assert_same(actual, expected, rtol=2e-5, atol=2e-6):
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=rtol, atol=atol)


CASES = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1),
    "sgd decay": lambda ps: torch.optim.SGD(ps, lr=0.1, weight_decay=0.2),
    "sgd momentum": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.01),
    "sgd dampening": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, dampening=0.3),
    "sgd dampening without momentum": lambda ps: torch.optim.SGD(ps, lr=0.1, dampening=0.3),
    "sgd nesterov": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.8, nesterov=True),
    "sgd maximize": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.5, maximize=True),
    "adam": torch.optim.Adam,
    "adam all": lambda ps: torch.optim.Adam(
        ps, lr=0.05, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.1, maximize=True
    ),
    "adam without first momentum": lambda ps: torch.optim.Adam(ps, betas=(0.0, 0.9)),
    "adam decoupled": lambda ps: torch.optim.Adam(
        ps, lr=0.1, weight_decay=0.1, decoupled_weight_decay=True
    ),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=0.05),
    "adamw decay": lambda ps: torch.optim.AdamW(ps, lr=0.05, weight_decay=0.3),
    "rmsprop": torch.optim.RMSprop,
    "rmsprop all": lambda ps: torch.optim.RMSprop(
        ps, lr=0.02, alpha=0.9, eps=1e-3, weight_decay=0.1, momentum=0.7, centered=True
    ),
    "rmsprop centered": lambda ps: torch.optim.RMSprop(ps, eps=1e-2, centered=True),
    "rmsprop momentum": lambda ps: torch.optim.RMSprop(ps, momentum=0.9, maximize=True),
    "groups": lambda ps: torch.optim.AdamW(
        [{"params": ps[:2], "lr": 0.1}, {"params": ps[2:], "betas": (0.5, 0.9), "eps": 1e-3}],
        lr=0.01,
    ),
    "momentum in one group": lambda ps: torch.optim.SGD(
        [{"params": ps[1:], "lr": 0.2, "momentum": 0.9}, {"params": ps[:1]}], lr=0.1
    ),
}


@pytest.mark.parametrize("how", ["functional", "in place", "tensors"])
@pytest.mark.parametrize("case", CASES)
def test_update_equals_torch(case, how):
    """Five steps of a rule change weights as five steps of torch.optim do."""
    assert_same(run_rule(CASES[case], how), run_torch(CASES[case]))


@pytest.mark.parametrize("how", ["functional", "in place", "tensors"])
@pytest.mark.parametrize("case", CASES)
def test_loss_scaling_and_clipping(case, how):
    """Scaled gradients are unscaled before their norm is clipped, as clip_grad_norm_ does."""
    extra = {"loss_scaling": 128.0, "max_grad_norm": 0.5}
    actual = run_rule(CASES[case], how, loss_scaling=128.0, attributes=extra)
    assert_same(actual, run_torch(CASES[case], max_norm=0.5), rtol=1e-4, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    lr=st.floats(1e-4, 1.0),
    momentum=st.sampled_from([0.0, 0.5, 0.99]),
    dampening=st.sampled_from([0.0, 0.1, 0.9]),
    weight_decay=st.sampled_from([0.0, 0.01, 0.5]),
    maximize=st.booleans(),
    n_steps=st.integers(1, 6),
)
def test_sgd_for_any_numbers(lr, momentum, dampening, weight_decay, maximize, n_steps):
    """SGD equals torch's for any mix of momentum, dampening and decay."""

    def make(params):
        return torch.optim.SGD(
            params,
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            weight_decay=weight_decay,
            maximize=maximize,
        )

    expected = run_torch(make, n_steps)
    assert_same(run_rule(make, "functional", n_steps), expected, rtol=1e-4, atol=1e-5)
    assert_same(run_rule(make, "in place", n_steps), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    lr=st.floats(1e-4, 0.5),
    beta1=st.sampled_from([0.0, 0.5, 0.9]),
    beta2=st.sampled_from([0.9, 0.999, 0.9999]),
    eps=st.sampled_from([1e-8, 1e-3]),
    weight_decay=st.sampled_from([0.0, 0.01, 0.3]),
    kind=st.sampled_from([torch.optim.Adam, torch.optim.AdamW]),
    n_steps=st.integers(1, 6),
)
def test_adam_for_any_numbers(lr, beta1, beta2, eps, weight_decay, kind, n_steps):
    """Adam and AdamW equal torch's for any betas, eps and decay."""

    def make(params):
        return kind(params, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay)

    expected = run_torch(make, n_steps)
    assert_same(run_rule(make, "functional", n_steps), expected, rtol=1e-4, atol=1e-5)
    assert_same(run_rule(make, "in place", n_steps), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["sgd momentum", "adam", "adamw", "rmsprop all"])
def test_a_new_learning_rate_needs_no_new_rule(case):
    """Numbers are read from the optimiser at each step: the rule stays the same."""
    params = make_parameters()
    optimizer = CASES[case](params)
    rule = rule_from(optimizer, named(params))
    before = hyper_values(rule, optimizer)
    optimizer.param_groups[0]["lr"] = 0.77
    after = hyper_values(rule, optimizer)
    assert rule_from(optimizer, named(params)) == rule
    assert after[rule.hyper_names.index("lr_group0")] == 0.77
    assert not rule.must_recapture(before, after)
    assert all(new == old for new, old in list(zip(after, before, strict=True))[1:])


def test_hyper_names():
    """The learning rate of each group is variable always, other numbers if they say something."""
    params = make_parameters()
    optimizer = CASES["groups"](params)
    rule = rule_from(optimizer, named(params))
    assert rule.hyper_names == (
        "lr_group0",
        "lr_group1",
        "beta1_group1",
        "beta2_group1",
        "eps_group1",
    )
    assert hyper_values(rule, optimizer) == [0.1, 0.01, 0.5, 0.9, 1e-3]
    assert rule.must_recapture([0.1, 0.01, 0.5, 0.9, 1e-3], [0.1, 0.01, 0.6, 0.9, 1e-3])
    optimizer.loss_scaling = 2.0
    assert rule_from(optimizer, named(params)).hyper_names[-1] == "loss_scaling"


def test_membership():
    """Frozen weights and those in no group are not trained; a tied weight is trained once."""
    a, b, c, d = make_parameters(shapes=[(2,)] * 4)
    b.requires_grad_(False)
    optimizer = torch.optim.SGD([{"params": [d]}, {"params": [a, b]}], lr=0.1)
    rule = rule_from(optimizer, [("a", a), ("b", b), ("c", c), ("d", d), ("again", a)])
    assert rule.names == ("a", "d")
    assert rule.group_of == (1, 0)
    assert rule.n_groups == 2


def test_state_names():
    """States carry PopART's names, in the order of the flat list."""
    params = make_parameters(shapes=[(2,), (3,)])
    names = {
        case: rule_from(CASES[case](params), named(params)).state_names()
        for case in ["sgd", "sgd momentum", "sgd dampening", "adam", "rmsprop all", "rmsprop"]
    }
    assert names["sgd"] == ()
    assert names["sgd momentum"] == ("Accl1___w0", "Accl1___w1")
    assert names["sgd dampening"] == ("Accl1___w0", "Accl1___w1", "Step___w0", "Step___w1")
    assert names["adam"] == (
        "Accl1___w0", "Accl1___w1", "Accl2___w0", "Accl2___w1", "Step___w0", "Step___w1",
    )  # fmt: skip
    assert names["rmsprop"] == ("Accl1___w0", "Accl1___w1")
    assert names["rmsprop all"][::2] == ("Accl1___w0", "Accl2___w0", "Accl3___w0")
    rule = rule_from(CASES["sgd momentum"](params), named(params))
    assert rule.state_names(["x", "y"]) == ("Accl1___x", "Accl1___y")


def test_initial_states():
    """States start at 0 with the shape and layout of their weight; steps are scalars."""
    params = [torch.nn.Parameter(torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last))]
    states = rule_from(CASES["adam"](params), named(params)).initial_state(params)
    assert [tuple(s.shape) for s in states] == [(2, 3, 4, 4), (2, 3, 4, 4), ()]
    assert states[0].stride() == params[0].stride()
    assert not any(s.requires_grad or s.any() for s in states)


def test_gradients_of_another_layout():
    """A transposed or expanded gradient is not read as if it were contiguous."""
    for case in ["sgd", "adam", "rmsprop"]:
        params = make_parameters(shapes=[(3, 4), (5,)])
        rule = rule_from(CASES[case](params), named(params))
        grads = [torch.randn(4, 3).t(), torch.ones(()).expand(5)]
        weights = [p.detach().clone() for p in params]
        states = rule.initial_state(weights)
        floats = hyper_values(rule, CASES[case](params))
        expected, _ = rule.update(weights, grads, states, floats)
        update_in_place(rule, weights, grads, states, None, floats)
        assert_same(weights, expected)


def test_plain_sgd_ipu_params():
    """Plain SGD shows PopART's combined numbers, and takes them back from a checkpoint."""
    params = make_parameters(shapes=[(2,), (3,)])
    optimizer = torch.optim.SGD(params, lr=0.05, weight_decay=0.025)
    optimizer.loss_scaling = 0.75
    rule = rule_from(optimizer, named(params))
    shown = ipu_params(rule, hyper_values(rule, optimizer))
    assert set(shown) == {
        "scaledLearningRate0___specific___w0",
        "scaledLearningRate0___specific___w1",
        "weightDecayScaleFactor0___specific___w0",
        "weightDecayScaleFactor0___specific___w1",
        "lossScaling_FLOAT",
    }
    assert shown["scaledLearningRate0___specific___w0"].item() == pytest.approx(0.05 / 0.75)
    assert shown["weightDecayScaleFactor0___specific___w1"].item() == pytest.approx(
        1 - 0.05 * 0.025
    )
    assert shown["lossScaling_FLOAT"].shape == ()
    loaded = hyper_from_ipu_params(rule, shown, [1.0, 1.0, 1.0])
    assert loaded == pytest.approx([0.05, 0.025, 0.75], rel=1e-4)


@pytest.mark.parametrize("case", ["sgd momentum", "sgd dampening", "adam all", "rmsprop all"])
def test_ipu_params_come_back(case):
    """Loading the numbers that were shown changes nothing; missing ones stay as they are."""
    params = make_parameters()
    optimizer = CASES[case](params)
    optimizer.loss_scaling = 4.0
    rule = rule_from(optimizer, named(params))
    values = hyper_values(rule, optimizer)
    shown = ipu_params(rule, values)
    assert hyper_from_ipu_params(rule, shown, [0.5] * len(values)) == pytest.approx(
        values, rel=1e-4
    )
    assert hyper_from_ipu_params(rule, {}, values) == values


def test_adam_ipu_params():
    """Adam shows the learning rate of each weight, and what else is variable."""
    params = make_parameters(shapes=[(2,)])
    optimizer = torch.optim.Adam(params, lr=0.5, weight_decay=0.1)
    rule = rule_from(optimizer, named(params))
    shown = ipu_params(rule, hyper_values(rule, optimizer))
    assert {name: value.item() for name, value in shown.items()} == pytest.approx(
        {
            "learningRate___specific___w0": 0.5,
            "weightDecay___specific___w0": 0.1,
            "lossScaling_FLOAT": 1.0,
        }
    )


def test_half_weights_round_once():
    """Half weights with float states are computed in float and rounded at the end only."""
    for case in ["sgd momentum", "adam", "adamw", "rmsprop all"]:
        params = make_parameters(dtype=torch.float16)
        optimizer = CASES[case](params)
        rule = rule_from(optimizer, named(params))
        weights = [p.detach().clone() for p in params]
        states = rule.initial_state(weights)
        assert all(s.dtype == torch.float32 for s in states)
        floats = hyper_values(rule, optimizer)
        exact = [w.float() for w in weights]
        expected, _ = rule.update(exact, make_gradients(exact, 0), states, floats)
        grads = [g.half() for g in make_gradients(exact, 0)]
        update_in_place(rule, weights, grads, states, None, floats)
        assert all(w.dtype == torch.float16 for w in weights)
        assert_same([w.float() for w in weights], expected, rtol=2e-3, atol=2e-3)


def test_lr_zero_changes_nothing():
    """With a learning rate of 0 weights keep every bit."""
    for case, make in CASES.items():
        params = make_parameters()
        optimizer = make(params)
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        rule = rule_from(optimizer, named(params))
        weights = [p.detach().clone() for p in params]
        update_in_place(
            rule,
            weights,
            make_gradients(weights, 0),
            rule.initial_state(weights),
            None,
            hyper_values(rule, optimizer),
        )
        assert all(torch.equal(w, p) for w, p in zip(weights, params, strict=True)), case


def test_updates_trace_to_simple_operations():
    """The functional update traces with fake tensors to a graph without in-place or list ops."""
    from torch.fx.experimental.proxy_tensor import make_fx

    for case in ["sgd dampening", "adamw decay", "rmsprop all"]:
        params = make_parameters(shapes=[(3, 4), ()])
        optimizer = CASES[case](params)
        optimizer.loss_scaling = 2.0
        optimizer.max_grad_norm = 1.0
        rule = rule_from(optimizer, named(params))
        weights = [p.detach() for p in params]
        graph = make_fx(lambda *args, rule=rule: rule.update(*args), tracing_mode="fake")(
            weights,
            make_gradients(weights, 0),
            rule.initial_state(weights),
            [torch.tensor(v) for v in hyper_values(rule, optimizer)],
        )
        ops = {node.target for node in graph.graph.nodes if node.op == "call_function"}
        assert not [op for op in ops if "foreach" in str(op) or "_." in str(op)], case


def test_unsupported_optimizer():
    """Another class is an assertion that names the supported ones."""
    with pytest.raises(
        AssertionError, match=r"Unsupported optimizer type. Types supported \['SGD'"
    ):
        rule_from(torch.optim.Adagrad(make_parameters()), [])


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_amsgrad(kind):
    """The amsgrad variant is a ValueError."""
    with pytest.raises(ValueError, match="Only non-amsgrad Adam/AdamW optimizers are supported"):
        rule_from(kind(make_parameters(), amsgrad=True), [])


def test_centered_must_agree():
    """Centred and plain RMSprop cannot be mixed in one optimiser."""
    a, b = make_parameters(shapes=[(1,), (1,)])
    optimizer = torch.optim.RMSprop([{"params": [a], "centered": True}, {"params": [b]}])
    with pytest.raises(AssertionError, match="the same value for the 'centered' attribute"):
        rule_from(optimizer, [])


def test_subclass_warning():
    """A user's subclass causes a warning that its code does not run; plain classes do not."""

    class Mine(torch.optim.AdamW):
        pass

    warnings = []
    for kind in (torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop):
        warn_about_subclass(kind(make_parameters()), warnings.append)
    assert warnings == []
    warn_about_subclass(Mine(make_parameters()), warnings.append)
    assert "Mine is a subclass of AdamW. Poptorch does not run Python optimizer code" in warnings[0]


def test_changed_constants():
    """A rule says which of its constants another optimiser would change."""
    params = make_parameters()
    rule = rule_from(torch.optim.SGD(params, lr=0.1), named(params))
    other = torch.optim.SGD(params, lr=0.2, momentum=0.5, weight_decay=0.1, maximize=True)
    assert changed_constants(rule, settings_of(torch.optim.SGD(params, lr=0.3))) == []
    assert changed_constants(rule, settings_of(other)) == [
        "momentum of group 0: 0 -> 0.5",
        "weight_decay of group 0: 0 -> 0.1",
        "maximize of group 0: False -> True",
    ]
    rule = rule_from(torch.optim.Adam(params), named(params))
    for beta, is_other in ((0.9 + 1e-12, False), (0.9 + 1e-6, True)):
        result = changed_constants(rule, settings_of(torch.optim.Adam(params, betas=(beta, 0.999))))
        assert result == (["beta1 of group 0: 0.9 -> 0.900001"] if is_other else [])


def test_bias_correction_keeps_its_digits():
    """1 - beta^step is exact to float precision even for the first steps of a beta near 1."""
    from tremula.ir.optim.formulas import bias_corrections

    steps = torch.tensor([1.0, 2.0, 1000.0])
    first, second = bias_corrections({"beta1": 0.9, "beta2": 0.9999}, steps)
    for k, step in enumerate(steps.tolist()):
        assert first[k].item() == pytest.approx(1 / (1 - 0.9**step), rel=1e-6)
        assert second[k].item() == pytest.approx(1 / math.sqrt(1 - 0.9999**step), rel=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("has_floats", [True, False])
@pytest.mark.parametrize("extra", [{}, {"loss_scaling": 8.0, "max_grad_norm": 0.5}])
@pytest.mark.parametrize("case", CASES)
def test_captured_update_equals_the_functional_one(case, extra, has_floats):
    """A CUDA graph of `update_` follows new learning rates and loss scalings without a capture."""
    params = make_parameters()
    optimizer = CASES[case](params)
    for name, value in extra.items():
        setattr(optimizer, name, value)
    rule = rule_from(optimizer, named(params))
    weights = [p.detach().cuda() for p in params]
    states = rule.initial_state(weights)
    grads = [torch.zeros_like(w) for w in weights]
    floats = hyper_values(rule, optimizer)
    tensors = [torch.tensor(value, device="cuda") for value in floats]
    expected, expected_states = list(weights), list(states)
    weights, states = [w.clone() for w in weights], [s.clone() for s in states]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        update_in_place(rule, weights, grads, states, tensors, floats if has_floats else None)
    for step in range(3):
        for tensor, name in zip(tensors, rule.hyper_names, strict=True):
            if name.startswith(("lr", "loss")):
                tensor.mul_(0.5)
        for grad, new in zip(grads, make_gradients(params, step), strict=True):
            grad.copy_(new)
        expected, expected_states = rule.update(expected, grads, expected_states, tensors)
        graph.replay()
    assert_same(weights, expected, rtol=1e-4, atol=1e-5)
    assert_same(states, expected_states, rtol=1e-4, atol=1e-5)

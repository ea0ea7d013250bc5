"""Optimisers of PopART against torch's, or against their formulas, ten steps each."""

import numpy as np
import pytest
import torch

import popart
from tremula.frontends.popart.optimisers.rule import (
    first_states,
    hyper_values,
    hyperparameters_by_weight,
    rule_of,
)

N_STEPS = 10
SHAPES = {"a": (3, 2), "b": (4,)}
LR, WD, B1, B2, EPS, ALPHA, MM = 0.05, 0.1, 0.8, 0.95, 1e-3, 0.9, 0.6


def gradients():
    """Gradients of each step, equal for every optimiser."""
    generator = torch.Generator().manual_seed(3)
    return [
        {id: torch.randn(shape, generator=generator) for id, shape in SHAPES.items()}
        for _ in range(N_STEPS)
    ]


def first_weights():
    generator = torch.Generator().manual_seed(4)
    return {id: torch.randn(shape, generator=generator) for id, shape in SHAPES.items()}


def trained(optimizer, changes=None, accumulates=False):
    """Weights after ten steps of a rule; `changes` are optimisers that take over at a step."""
    ids = list(SHAPES)
    rule = rule_of(optimizer, {id: (id, torch.float32) for id in ids}, accumulates=accumulates)
    params = list(first_weights().values())
    states = first_states(rule, params, hyperparameters_by_weight(optimizer, ids))
    for step, grads in enumerate(gradients()):
        optimizer = (changes or {}).get(step, optimizer)
        hyper = [torch.tensor(v) for v in hyper_values(optimizer, ids, rule)]
        scaling = optimizer.getLossScalingVal()
        scaled = [grads[id] * scaling for id in ids]
        params, states = rule.update(params, scaled, states, hyper)
    return dict(zip(ids, params, strict=True))


def by_torch(make):
    """Weights after ten steps of an optimiser of torch's."""
    weights = {id: value.clone().requires_grad_() for id, value in first_weights().items()}
    optimizer = make(list(weights.values()))
    for grads in gradients():
        for id, weight in weights.items():
            weight.grad = grads[id].clone()
        optimizer.step()
    return {id: weight.detach() for id, weight in weights.items()}


def by_formula(step_of):
    """Weights after ten steps of a function (w, g, state, t) -> w."""
    result = {}
    for id, weight in first_weights().items():
        weight, state = weight.numpy().astype(np.float64), {}
        for t, grads in enumerate(gradients(), 1):
            weight = step_of(weight, grads[id].numpy().astype(np.float64), state, t)
        result[id] = weight
    return result


def same(got, expected, tolerance=2e-5):
    for id in SHAPES:
        np.testing.assert_allclose(got[id].numpy(), np.asarray(expected[id]), tolerance, tolerance)


def values(**numbers):
    """Numbers for all weights; every other one is variable."""
    return {
        f"default{name[0].upper()}{name[1:]}": (value, i % 2 == 0)
        for i, (name, value) in enumerate(numbers.items())
    }


SGD_VALUES = values(learningRate=LR, momentum=MM, weightDecay=WD)
SEPARATE = popart.SGDAccumulatorAndMomentum.Separate


@pytest.mark.parametrize("form", list(popart.SGDAccumulatorAndMomentum))
@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd(form, nesterov):
    """SGD with momentum and weight decay is torch's, in one tensor or two."""
    ours = popart.SGD(SGD_VALUES, accumulatorAndMomentum=form, nesterov=nesterov)
    kwargs = {"lr": LR, "momentum": MM, "weight_decay": WD, "nesterov": nesterov}
    same(trained(ours), by_torch(lambda p: torch.optim.SGD(p, **kwargs)))


@pytest.mark.parametrize("form", list(popart.SGDAccumulatorAndMomentum))
def test_dampening_and_velocity_scaling(form):
    """Every gradient is damped, the first too; scaling a velocity changes nothing."""
    numbers = values(learningRate=LR, momentum=MM, weightDecay=WD, dampening=0.3)

    def step(w, g, state, _t):
        state["v"] = MM * state.get("v", 0) + 0.7 * (g + WD * w)
        return w - LR * state["v"]

    ours = popart.SGD({**numbers, "defaultVelocityScaling": (8, True)}, (), form)
    same(trained(ours), by_formula(step))
    plain = popart.SGD(values(learningRate=LR, weightDecay=WD, dampening=0.3))
    same(trained(plain), by_formula(lambda w, g, _s, _t: w - LR * 0.7 * (g + WD * w)))


def test_constant_sgd_and_loss_scaling():
    """ConstSGD is plain SGD; a scaled loss trains alike, whether its scale is constant or not."""
    expected = by_torch(lambda p: torch.optim.SGD(p, lr=LR, weight_decay=WD))
    same(trained(popart.ConstSGD(LR, WD)), expected)
    same(trained(popart.ConstSGD(LR, WD, loss_scaling=64)), expected)
    numbers = {**values(learningRate=LR, x=0), "lossScaling": (64, False)}
    del numbers["defaultX"]
    same(trained(popart.SGD({**numbers, "defaultWeightDecay": (WD, False)})), expected)


def test_combined_momentum_acts_a_step_later():
    """A new momentum is applied to the velocity of the step after: both share a tensor."""
    numbers = {"defaultLearningRate": (LR, True), "defaultMomentum": (MM, False)}
    new = popart.SGD({**numbers, "defaultMomentum": (0.0, False)})

    def step(change_at):
        def update(w, g, state, t):
            momentum = MM if t <= change_at else 0.0
            state["v"] = momentum * state.get("v", 0) + g
            return w - LR * state["v"]

        return update

    same(trained(popart.SGD(numbers), {4: new}), by_formula(step(change_at=5)))
    new = popart.SGD({**numbers, "defaultMomentum": (0.0, False)}, (), SEPARATE)
    same(trained(popart.SGD(numbers, (), SEPARATE), {4: new}), by_formula(step(change_at=4)))


ADAM_VALUES = values(learningRate=LR, beta1=B1, beta2=B2, eps=EPS, weightDecay=WD)
ADAM_KWARGS = {"lr": LR, "betas": (B1, B2), "eps": EPS, "weight_decay": WD}
DECAY, PENALTY = popart.WeightDecayMode.Decay, popart.WeightDecayMode.L2Regularization


def test_adam():
    """Adam decays weights as torch's AdamW does, or through the gradient as torch's Adam does."""
    ours = popart.Adam(ADAM_VALUES)
    same(trained(ours), by_torch(lambda p: torch.optim.AdamW(p, **ADAM_KWARGS)))
    ours = popart.Adam(ADAM_VALUES, weight_decay_mode=PENALTY)
    same(trained(ours), by_torch(lambda p: torch.optim.Adam(p, **ADAM_KWARGS)))


def test_adamax():
    """AdaMax divides by a decaying maximum."""
    ours = popart.Adam(ADAM_VALUES, popart.AdamMode.AdaMax)

    def step(w, g, s, t):
        s["m"] = B1 * s.get("m", 0) + (1 - B1) * g
        s["v"] = np.maximum(B2 * s.get("v", 0), np.abs(g))
        return w - LR * (s["m"] / (1 - B1**t) / (s["v"] + EPS) + WD * w)

    same(trained(ours), by_formula(step))


@pytest.mark.parametrize("mode", ["AdamNoBias", "Lamb", "LambNoBias"])
@pytest.mark.parametrize("decay", [DECAY, PENALTY])
def test_adam_without_bias_and_lamb(mode, decay):
    """Without bias nothing is corrected; Lamb's step is as long as its weights, up to a limit."""
    longest = 1.5
    numbers = {**ADAM_VALUES, "defaultMaxWeightNorm": (longest, True)}
    ours = popart.Adam(numbers, popart.AdamMode[mode], decay)

    def step(w, g, s, t):
        g = g + WD * w if decay is PENALTY else g
        s["m"] = B1 * s.get("m", 0) + (1 - B1) * g
        s["v"] = B2 * s.get("v", 0) + (1 - B2) * g * g
        first, second = (1, 1) if mode.endswith("NoBias") else (1 - B1**t, 1 - B2**t)
        x = s["m"] / first / (np.sqrt(s["v"] / second) + EPS)
        x = x if decay is PENALTY else x + WD * w
        if mode.startswith("Lamb"):
            x = x * min(np.linalg.norm(w), longest) / np.linalg.norm(x)
        return w - LR * x

    same(trained(ours), by_formula(step))


ADAPTIVE_VALUES = values(learningRate=LR, alpha=ALPHA, momentum=MM, eps=EPS, weightDecay=WD)


@pytest.mark.parametrize("centered", [False, True])
def test_rmsprop(centered):
    """RMSProp is torch's, centred or not, with weight decay through the gradient."""
    kinds = popart.AdaptiveMode
    mode = kinds.CenteredRMSProp if centered else kinds.RMSProp
    ours = popart.Adaptive(ADAPTIVE_VALUES, mode, PENALTY)
    kwargs = {"lr": LR, "alpha": ALPHA, "momentum": MM, "eps": EPS, "weight_decay": WD}
    same(trained(ours), by_torch(lambda p: torch.optim.RMSprop(p, **kwargs, centered=centered)))


def test_tensorflows_rmsprop():
    """The variant has ε inside the root, the rate inside the momentum, and starts at one.

    Decoupled decay then is not multiplied by the rate.
    """
    ours = popart.Adaptive(ADAPTIVE_VALUES, rmsprop_tf_variant=True)

    def step(w, g, s, _t):
        s["v"] = ALPHA * s.get("v", 1) + (1 - ALPHA) * g * g
        s["m"] = MM * s.get("m", 0) + LR * g / np.sqrt(s["v"] + EPS)
        return w - s["m"] - WD * w

    same(trained(ours), by_formula(step))
    with pytest.raises(popart.popart_exception, match="a form of RMSProp, not of AdaGrad"):
        popart.Adaptive({}, popart.AdaptiveMode.AdaGrad, rmsprop_tf_variant=True)


def test_ada_grad_and_ada_delta():
    """AdaGrad and AdaDelta are torch's where torch has the same numbers."""
    numbers = values(learningRate=LR, alpha=ALPHA, eps=EPS, weightDecay=WD)
    ours = popart.Adaptive(numbers, popart.AdaptiveMode.AdaGrad, PENALTY)
    kwargs = {"lr": LR, "eps": EPS, "weight_decay": WD}
    same(trained(ours), by_torch(lambda p: torch.optim.Adagrad(p, **kwargs)))
    ours = popart.Adaptive(numbers, popart.AdaptiveMode.AdaDelta, PENALTY)
    same(trained(ours), by_torch(lambda p: torch.optim.Adadelta(p, rho=ALPHA, **kwargs)))


def test_numbers_of_single_weights():
    """insertSpecific gives a weight its own numbers; others keep those of all."""
    ours = popart.SGD({"defaultLearningRate": (LR, False)})
    ours.insertSpecific("b", {"learningRate": (0.5, False), "weightDecay": (WD, True)})
    result = trained(ours)
    same({**result, "b": result["a"]}, {**by_torch(lambda p: torch.optim.SGD(p, lr=LR)),
                                     "b": result["a"]})  # fmt: skip
    expected = by_torch(lambda p: torch.optim.SGD(p, lr=0.5, weight_decay=WD))
    np.testing.assert_allclose(result["b"], expected["b"], 1e-5)
    assert ours.learningRates().get("b").val() == 0.5
    assert ours.learningRates().getDefault().val() == LR
    with pytest.raises(popart.popart_exception, match="does not have a value 'learningRates'"):
        ours.insertSpecific("b", {"learningRates": (1, True)})
    ours.insertSpecific("c", {})
    with pytest.raises(popart.popart_exception, match="the weight 'c', which is not trained"):
        trained(ours)


@pytest.mark.parametrize("scaling", [1, 32])
def test_clipping(scaling):
    """Gradients of a group together are no longer than said; others stay as they are."""
    both = [popart.ClipNormSettings.clipAllWeights(0.5)]

    def clipped(ids):
        def step(params):
            return torch.optim.SGD(params, lr=LR)

        weights = {id: value.clone().requires_grad_() for id, value in first_weights().items()}
        optimizer = step(list(weights.values()))
        for grads in gradients():
            length = torch.sqrt(sum((grads[id] ** 2).sum() for id in ids))
            for id, weight in weights.items():
                factor = 0.5 / max(float(length), 0.5) if id in ids else 1
                weight.grad = grads[id] * factor
            optimizer.step()
        return {id: weight.detach() for id, weight in weights.items()}

    ours = popart.ConstSGD(LR, loss_scaling=scaling, clip_norm_settings=both)
    same(trained(ours), clipped(["a", "b"]))
    one = [popart.ClipNormSettings.clipWeights(["b"], 0.5)]
    same(trained(popart.ConstSGD(LR, loss_scaling=scaling, clip_norm_settings=one)), clipped(["b"]))


def test_what_can_be_replaced():
    """Variable numbers may change; constants, kinds and clipping may not."""
    before = popart.SGD({"defaultLearningRate": (0.1, False), "defaultWeightDecay": (0.1, True)})
    before.check_replacement(
        popart.SGD({"defaultLearningRate": (0.2, False), "defaultWeightDecay": (0.1, True)})
    )
    for after, text in (
        (popart.SGD({"defaultLearningRate": (0.2, False)}), "weightDecay can not be replaced"),
        (popart.SGD({"defaultLearningRate": (0.1, True)}), "learningRate can not be replaced"),
        (popart.Adam({}), "its kind, modes, types and clipping"),
    ):
        with pytest.raises(popart.popart_exception, match=text):
            before.check_replacement(after)
    with pytest.raises(popart.popart_exception, match="did you mean 'defaultLearningRate'"):
        popart.SGD({"learningRate": (0.1, False)})

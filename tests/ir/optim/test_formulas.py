"""Formulas that all front ends share: against float64, and where each front end uses them."""

import itertools
import math

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import popart
import popxl
from popxl import ops
from tremula.frontends.onnx import import_model
from tremula.frontends.popart.optimisers.rule import rule_of
from tremula.frontends.poptorch.optim.rule import rule_from
from tremula.ir.optim.formulas import (
    adam_direction,
    capped,
    moments,
    one_minus_power,
    trust_ratio,
)

BETAS = (0.0, 0.5, 0.9, 0.999, 0.9999, 0.999999)
STEPS = (1, 2, 10, 1000, 10**5, 10**7)
PRECISION = 4 * 2.0**-23  # a few roundings of float32


def exact_one_minus_power(beta: float, step: int) -> float:
    """1 - beta^step in float64, of the beta that float32 has."""
    beta = float(np.float32(beta))
    return 1.0 if beta == 0 else -math.expm1(step * math.log(beta))


@pytest.mark.parametrize("is_tensor", [False, True])
def test_one_minus_power_keeps_all_digits(is_tensor):
    """From the first step of a beta near 1 to the ten-millionth, constant or variable."""
    for beta, step in itertools.product(BETAS, STEPS):
        base = torch.tensor(beta) if is_tensor else float(np.float32(beta))
        result = one_minus_power(base, torch.tensor([float(step)])).item()
        # log(beta) of a variable is rounded to float32, too.
        exact = exact_one_minus_power(beta, step)
        assert result == pytest.approx(exact, rel=2 * PRECISION if is_tensor else PRECISION)


@pytest.mark.parametrize("step", [1, 3, 1000, 10**6])
def test_popxl_corrects_bias_without_losing_digits(step):
    """`adam_updater` of moments that are all bias is 1 at every step, whatever the betas."""
    ir = popxl.Ir()
    beta1, beta2 = (float(np.float32(beta)) for beta in (0.999, 0.99999))
    first = exact_one_minus_power(beta1, step)
    second = exact_one_minus_power(beta2, step)
    with ir.main_graph, popxl.in_sequence(True):
        mean = popxl.variable(np.full(3, first, np.float32))
        square = popxl.variable(np.full(3, second, np.float32))
        results = [
            ops.var_updates.adam_updater(
                mean, square, time_step=popxl.variable(float(step - 1)),
                beta1=beta1, beta2=beta2, epsilon=0.0,
            ),
            ops.var_updates.adamax_updater(
                mean, popxl.variable(np.ones(3, np.float32)),
                time_step=popxl.variable(float(step - 1)), beta1=beta1, epsilon=0.0,
            ),
        ]  # fmt: skip
        streams = [popxl.d2h_stream(r.shape, r.dtype) for r in results]
        for stream, result in zip(streams, results, strict=True):
            ops.host_store(stream, result)
    with popxl.Session(ir, "cpu") as session:
        outputs = session.run()
    for stream in streams:
        np.testing.assert_allclose(outputs[stream], np.ones(3), rtol=1e-6)


@pytest.mark.parametrize("step", [1, 3, 1000, 10**6])
def test_onnx_corrects_bias_without_losing_digits(step):
    """A step of ONNX's Adam has the size that float64 gives, for betas near 1."""
    alpha, beta, rate = 0.999, 0.99999, 0.5
    names = ["R", "T", "X", "G", "V", "H"]
    node = helper.make_node(
        "Adam", names, ["X1", "V1", "H1"], domain="ai.onnx.preview.training",
        alpha=alpha, beta=beta, epsilon=0.0, norm_coefficient=0.0,
    )  # fmt: skip
    types = [TensorProto.FLOAT, TensorProto.INT64] + [TensorProto.FLOAT] * 4
    shapes = [[], []] + [[2]] * 4
    inputs = [
        helper.make_tensor_value_info(n, t, s) for n, t, s in zip(names, types, shapes, strict=True)
    ]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("X1", "V1", "H1")]
    model = helper.make_model(
        helper.make_graph([node], "step", inputs, outputs),
        opset_imports=[
            helper.make_opsetid("ai.onnx.preview.training", 1), helper.make_opsetid("", 17)
        ],
    )  # fmt: skip
    onnx.checker.check_model(model)
    zeros, ones = torch.zeros(2), torch.ones(2)
    values = [torch.tensor(rate), torch.tensor(step), zeros, ones, ones, ones]
    new = import_model(model).module(*values)[0]
    size = rate * math.sqrt(exact_one_minus_power(beta, step)) / exact_one_minus_power(alpha, step)
    np.testing.assert_allclose(new.numpy(), np.full(2, -size), rtol=1e-6)


def test_adam_directions_agree_with_float64():
    """Moments and corrected directions, for gradients of very different sizes."""
    grads = np.array([1e-6, 1e-2, 1.0, 1e4])
    mean = square = torch.zeros(4)
    exact_mean = exact_square = np.zeros(4)
    for step in range(1, 6):
        grad = torch.tensor(grads * step, dtype=torch.float32)
        mean, square = moments(grad, mean, square, 0.9, 0.999)
        exact_mean = 0.9 * exact_mean + 0.1 * grads * step
        exact_square = 0.999 * exact_square + 0.001 * (grads * step) ** 2
        first, second = 1 / (1 - 0.9**step), 1 / math.sqrt(1 - 0.999**step)
        exact = exact_mean * first / (np.sqrt(exact_square) * second + 1e-8)
        corrections = torch.tensor(first), torch.tensor(second)
        direction = adam_direction(mean, square, 1e-8, *corrections)
        np.testing.assert_allclose(direction.numpy(), exact, rtol=1e-4)


def test_trust_ratio():
    """LAMB's ratio of norms, up to a largest one; 1 where a norm is 0."""
    norms = torch.tensor([2.0, 0.0, 2.0, 8.0]), torch.tensor([4.0, 4.0, 0.0, 4.0])
    assert trust_ratio(*norms).tolist() == [0.5, 1.0, 1.0, 2.0]
    for limit in (4.0, torch.tensor(4.0)):
        assert trust_ratio(capped(norms[0], limit), norms[1]).tolist() == [0.5, 1.0, 1.0, 1.0]
    assert capped(norms[0], math.inf) is norms[0]


def test_texts_of_rules_are_those_of_their_updates():
    """Cached programs are found by these texts: equal for equal rules, in all processes."""
    weights = {"w": ("w", torch.float32)}
    modes = popart.WeightDecayMode.Decay, popart.WeightDecayMode.L2Regularization
    rules = [
        rule_of(popart.Adam({}, mode=mode, weight_decay_mode=decay), weights, accumulates=False)
        for mode in (popart.AdamMode.Adam, popart.AdamMode.Lamb)
        for decay in modes
    ]
    weight = torch.nn.Parameter(torch.zeros(2))
    rules += [
        rule_from(optimizer, [("w", weight)])
        for optimizer in (torch.optim.Adam([weight]), torch.optim.AdamW([weight]))
    ]
    texts = [repr(rule) for rule in rules]
    assert len(set(texts)) == len(texts)
    assert not any(" at 0x" in text for text in texts)

"""Operators of ai.graphcore, built and run, against NumPy and torch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import popart
from tremula.frontends.onnx.imported import import_model

RNG = np.random.default_rng(5)
A = RNG.standard_normal((4, 6)).astype(np.float32)
B = RNG.standard_normal((4, 6)).astype(np.float32)
I = RNG.integers(-9, 9, (4, 6)).astype(np.int32)
J = RNG.integers(1, 9, (4, 6)).astype(np.int32)
ROWS = np.array([0, 2, 2, 1], np.int32)
PLACE = np.array([1], np.int32)
EDGES = np.array([-1, 0, 1], np.float32)
NONE, SUM = popart.ReductionType.NoReduction, popart.ReductionType.Sum
P = np.exp(A) / np.exp(A).sum(1, keepdims=True)


def t(array):
    return torch.tensor(array)


def moved(x, value):
    result = x.copy()
    result[1:3] = value
    return result


CASES = {
    "gelu": ([A], {}, lambda: F.gelu(t(A), approximate="tanh")),
    "geluerf": ([A], {}, lambda: F.gelu(t(A))),
    "swish": ([A], {}, lambda: F.silu(t(A))),
    "scale": ([A], {"scale": 0.5}, lambda: A / 2),
    "scaledadd": ([A, B], {"scale0": 2, "scale1": -1}, lambda: 2 * A - B),
    "round": ([np.array([0.5, -1.5, 2.4], np.float32)], {}, lambda: np.array([1.0, -2.0, 2.0])),
    "nearbyint": ([np.array([0.5, -1.5, 2.4], np.float32)], {}, lambda: np.array([0.0, -2.0, 2.0])),
    "expm1": ([A], {}, lambda: np.expm1(A)),
    "log1p": ([abs(A)], {}, lambda: np.log1p(abs(A))),
    "atan2": ([A, B], {}, lambda: np.arctan2(A, B)),
    "fmod": ([A, B], {}, lambda: np.fmod(A, B)),
    "remainder": ([I, J], {}, lambda: np.remainder(I, J)),
    "bitwiseand": ([I, J], {}, lambda: I & J),
    "bitwiseor": ([I, J], {}, lambda: I | J),
    "bitwisexor": ([I, J], {}, lambda: I ^ J),
    "bitwisexnor": ([I, J], {}, lambda: ~(I ^ J)),
    "bitwisenot": ([I], {}, lambda: ~I),
    "incrementmod": ([J], {"increment": 3, "modulus": 5}, lambda: (J + 3) % 5),
    "bucketize": ([A, EDGES], {}, lambda: np.digitize(A, EDGES, True)),
    "detach": ([A], {}, lambda: A),
    "nop": ([A], {}, lambda: A),
    "l1loss": ([A], {"lambda": 0.5, "reduction": SUM}, lambda: 0.5 * abs(A).sum()),
    "identityloss": ([A], {}, A.mean),
    "nllloss": ([P, ROWS], {"ignoreIndex": 2}, lambda: -np.log(P[[0, 3], [0, 1]]).mean()),
    "reshape": ([A], {"shape": [0, 2, -1]}, lambda: A.reshape(4, 2, 3)),
    "reverse": ([A], {"dimensions": [1]}, lambda: A[:, ::-1]),
    "slice": ([A], {"ends": [3, -1], "starts": [1, 0]}, lambda: A[1:3, :-1]),
    "subsample": ([A], {"strides": [2, 4]}, lambda: A[::2, ::4]),
    "depthtospace": (
        [A.reshape(1, 4, 2, 3)], {"blocksize": 2, "mode": "CRD"},
        lambda: F.pixel_shuffle(t(A.reshape(1, 4, 2, 3)), 2),
    ),
    "dynamicslice": ([A, PLACE], {"axes": [0], "sizes": [2]}, lambda: A[1:3]),
    "dynamicupdate": ([A, PLACE, B[:2]], {"axes": [0], "sizes": [2]}, lambda: moved(A, B[:2])),
    "dynamiczero": ([A, PLACE], {"axes": [0], "sizes": [2]}, lambda: moved(A, 0)),
    "dynamicadd": (
        [A, PLACE, B[:2]], {"axes": [0], "sizes": [2]}, lambda: moved(A, A[1:3] + B[:2])
    ),
    "sort": ([A], {"axis": 0, "descending": 1}, lambda: -np.sort(-A, 0)),
    "reducemedian": ([A], {"axes": [1], "keepdims": 0}, lambda: torch.median(t(A), 1).values),
    "scatterreduce": (
        [A, ROWS], {"axis_size": 3, "axis": 0},
        lambda: np.stack([A[0], A[3], A[1] + A[2]]),
    ),
    "groupnormalization": (
        [A.reshape(2, 4, 3), np.ones(4, np.float32), np.zeros(4, np.float32)], {"num_groups": 2},
        lambda: F.group_norm(t(A.reshape(2, 4, 3)), 2),
    ),
    "shapeddropout": ([A], {"shape": [4, 1], "ratio": 0.0}, lambda: A),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operators(name):
    """An operator computes what NumPy or torch does, in the shape the builder foretold."""
    arrays, attributes, expected = CASES[name]
    builder = popart.Builder()
    ids = [builder.addInputTensor(popart.TensorInfo(array)) for array in arrays]
    made = getattr(builder.aiGraphcore, name)(ids, **attributes)
    first = made if isinstance(made, str) else made[0]
    imported = import_model(builder.getModelProto())
    inputs = dict(zip(ids, arrays, strict=True))
    result = np.asarray(imported.run(inputs, [first])[first])
    wanted = np.asarray(expected())
    assert list(result.shape) == list(wanted.shape) == builder.getTensorShape(first)
    np.testing.assert_allclose(result, wanted, 1e-5, 1e-6)


def test_lstm():
    """PopART's LSTM is torch's with gates in another order."""
    steps, batch, n_in, hidden = 3, 2, 4, 5
    x = RNG.standard_normal((steps, batch, n_in)).astype(np.float32)
    weights = RNG.standard_normal((4, n_in + hidden, hidden)).astype(np.float32)
    bias = RNG.standard_normal((4, hidden)).astype(np.float32)
    builder = popart.Builder()
    ids = [builder.addInputTensor(popart.TensorInfo(a)) for a in (x, weights, bias)]
    out, cell = builder.aiGraphcore.lstm(ids)
    inputs = dict(zip(ids, (x, weights, bias), strict=True))
    result = import_model(builder.getModelProto()).run(inputs, [out, cell])
    net = torch.nn.LSTM(n_in, hidden)
    order = [1, 0, 2, 3]  # torch: input, forget, candidate, output
    with torch.no_grad():
        net.weight_ih_l0.copy_(t(np.concatenate([weights[g, :n_in].T for g in order])))
        net.weight_hh_l0.copy_(t(np.concatenate([weights[g, n_in:].T for g in order])))
        net.bias_ih_l0.copy_(t(np.concatenate(bias[order])))
        net.bias_hh_l0.zero_()
        expected, (_, state) = net(t(x))
    np.testing.assert_allclose(result[out], expected, 1e-4, 1e-5)
    np.testing.assert_allclose(result[cell], state[0], 1e-4, 1e-5)


def test_ctc_loss_and_calls():
    """The loss of CTC is torch's; a called graph computes its outputs."""
    logs = np.log(np.full((5, 2, 3), 1 / 3, np.float32))
    targets = np.array([[1, 2], [1, 1]], np.int32)
    lengths = [np.array([5, 5], np.int32), np.array([2, 2], np.int32)]
    builder = popart.Builder()
    ids = [builder.addInputTensor(popart.TensorInfo(a)) for a in (logs, targets, *lengths)]
    loss = builder.aiGraphcore.ctcloss(ids, SUM)
    callee = builder.createSubgraphBuilder()
    callee.addOutputTensor(callee.aiOnnx.exp([callee.addInputTensor("FLOAT", [])]))
    (y,) = builder.aiGraphcore.call([loss], 1, callee)
    inputs = dict(zip(ids, (logs, targets, *lengths), strict=True))
    result = import_model(builder.getModelProto()).run(inputs, [loss, y])
    expected = F.ctc_loss(t(logs), t(targets), *(t(n) for n in lengths), reduction="sum")
    np.testing.assert_allclose(result[loss], expected, 1e-5)
    np.testing.assert_allclose(result[y], torch.exp(expected), 1e-4)

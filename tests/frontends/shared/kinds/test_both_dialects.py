"""PopART's kinds through both of their dialects: ai.graphcore, and operations of PopXL."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import popart
import popxl
from popxl import ops
from tests.frontends.popxl.runs import run
from tremula.frontends.onnx.imported import import_model

RNG = np.random.default_rng(3)


def drawn(*shape, dtype=np.float32, scale=1.0, offset=0.0):
    return (RNG.standard_normal(shape) * scale + offset).astype(dtype)


class Case(NamedTuple):
    """A kind: its operands, how PopART's builder and PopXL call it, and what it computes."""

    arrays: list[np.ndarray]
    build: Callable[..., Any]  # (ai.graphcore's operators, ids) → id or ids
    call: Callable[..., Any]  # tensors of PopXL → tensor
    expected: Callable[[], Any]
    tolerance: float = 1e-6


WIDE = drawn(2, 4, 64, dtype=np.float16, scale=3, offset=300)
PARTS = [drawn(4, dtype=np.float16), drawn(4, dtype=np.float16)]
LABELS = np.array([0, 2, 1, 2], np.int32)
SURE = np.eye(3, dtype=np.float32)[[0, 1, 1, 2]]  # of the second label, probability 0
TABLE, PART = drawn(5, 4), drawn(2, 4)
COUNTS = np.arange(6, dtype=np.int32)
TINY = float(np.finfo(np.float32).tiny)


def _group_norm():
    wide = [torch.tensor(a).float() for a in (WIDE, *PARTS)]
    return torch.nn.functional.group_norm(wide[0], 2, wide[1], wide[2]).half()


def _scattered():
    return np.stack([TABLE[[0, 3]].sum(0), TABLE[1], TABLE[[2, 4]].sum(0)])


CASES = {
    "group norm of halves": Case(
        [WIDE, *PARTS],
        lambda g, ids: g.groupnormalization(ids, 2),
        lambda *ts: ops.group_norm(*ts, 2),
        _group_norm,
        1e-3,
    ),
    "loss of a probability of 0": Case(
        [SURE, LABELS],
        lambda g, ids: g.nllloss(ids),
        ops.nll_loss,
        lambda: -np.log(np.float32(TINY)) / 4,
    ),
    "loss of ignored labels": Case(
        [SURE, np.full(4, 7, np.int32)],
        lambda g, ids: g.nllloss(ids, ignoreIndex=7),
        lambda *ts: ops.nll_loss(*ts, ignore_index=7),
        lambda: 0.0,
    ),
    "scaled sum of integers": Case(
        [COUNTS, COUNTS],
        lambda g, ids: g.scaledadd(ids, scale0=3.0),
        lambda *ts: ops.scaled_add(*ts, 3.0),
        lambda: 4 * COUNTS,
    ),
    "slice round the end": Case(
        [TABLE, np.array([4], np.int32)],
        lambda g, ids: g.dynamicslice(ids, [0], [2]),
        lambda *ts: ops.dynamic_slice(*ts, [0], [2], True),
        lambda: TABLE[[4, 0]],
    ),
    "update in two dimensions": Case(
        [TABLE, np.array([1, 2], np.int32), PART[:, :2]],
        lambda g, ids: g.dynamicupdate(ids, [0, 1], [2, 2]),
        lambda *ts: ops.dynamic_update(*ts, [0, 1], [2, 2], True),
        lambda: np.block([[TABLE[:1]], [TABLE[1:3, :2], PART[:, :2]], [TABLE[3:]]]),
    ),
    "scattered sum": Case(
        [TABLE, np.array([0, 1, 2, 0, 2], np.int32)],
        lambda g, ids: g.scatterreduce(ids, 3, axis=0),
        lambda t, i: ops.scatter_reduce(t, i, "sum", axis=0, axis_size=3),
        _scattered,
    ),
    "median of an even number": Case(
        [TABLE],
        lambda g, ids: g.reducemedian(ids, axes=[1], keepdims=0),
        lambda t: ops.median(t, 1),
        lambda: np.sort(TABLE, 1)[:, 1],
    ),
    "gelu": Case(
        [TABLE],
        lambda g, ids: g.gelu(ids),
        ops.gelu,
        lambda: torch.nn.functional.gelu(torch.tensor(TABLE), approximate="tanh"),
    ),
}


def _by_popart(case: Case) -> np.ndarray:
    builder = popart.Builder()
    ids = [builder.addInputTensor(popart.TensorInfo(array)) for array in case.arrays]
    made = case.build(builder.aiGraphcore, ids)
    first = made if isinstance(made, str) else made[0]
    model = import_model(builder.getModelProto())
    return np.asarray(model.run(dict(zip(ids, case.arrays, strict=True)), [first])[first])


def _by_popxl(case: Case) -> np.ndarray:
    ir = popxl.Ir()
    with ir.main_graph:
        result = case.call(*[popxl.variable(array) for array in case.arrays])
    return run(ir, [result])[0]


@pytest.mark.parametrize("name", CASES)
def test_both_dialects_compute_the_same(name):
    """A kind has one arithmetic: PopART's and PopXL's results are equal, and right."""
    case = CASES[name]
    first, second = _by_popart(case), _by_popxl(case)
    expected = np.asarray(case.expected())
    assert first.dtype == second.dtype == case.arrays[0].dtype
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, expected, case.tolerance, case.tolerance)

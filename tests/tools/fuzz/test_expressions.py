"""Expressions of front ends: their oracle agrees with itself and sees what is wrong."""

import numpy as np
import pytest
import torch

import popxl
from tools.fuzz.case import FAILED, PASSED, examine
from tools.fuzz.expressions import reference
from tools.fuzz.expressions.check import Expressions
from tools.fuzz.expressions.operations import OPERATIONS

CASE = {
    "front_end": "popxl", "shape": [4], "seed": 3, "training": True, "batch": 1, "steps": 1,
    "momentum": 0.9, "on_host": False, "replicas": 1, "accumulation": 2, "recompute": True,
    "nested": True, "sharded": False, "half": False,
    "nodes": [{"op": "linear", "ins": [0], "axis": 0, "n": 3},
              {"op": "tanh", "ins": [1], "axis": 0, "n": 1}],
}  # fmt: skip


def test_a_wrong_update_is_noticed(monkeypatch):
    """Training agrees with the reference; with another learning rate there it would not."""
    kind = Expressions("popxl")
    assert examine(kind, CASE).status == PASSED
    monkeypatch.setattr(reference, "LEARNING_RATE", 0.051)
    outcome = examine(kind, CASE)
    assert (outcome.status, outcome.signature) == (FAILED, "wrong values on tiles")


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_keep_samples_apart(name):
    """A sample's value is the same alone and beside others: any split computes the same."""
    node = {"op": name, "ins": [0] * OPERATIONS[name].n_values, "axis": 1, "n": 2}
    case = {**CASE, "shape": [2, 3], "nodes": [node], "accumulation": 3}
    x, weights = reference.data_of(case)
    x, weights = torch.from_numpy(x[0]), [torch.from_numpy(w) for w in weights]
    together = reference.evaluate(case, reference.PLAIN, x, weights)
    alone = [reference.evaluate(case, reference.PLAIN, row[None], weights) for row in x]
    torch.testing.assert_close(torch.cat(alone), together)


@pytest.mark.parametrize("format", ["143", "152"])
def test_numbers_of_8_bits(format):
    """The oracle's rounding to 8 bits, written from the format, is PopXL's for every scale."""
    numbers = np.random.default_rng(0).normal(size=400).astype(np.float32) * 50
    type = {"143": popxl.float8_143, "152": popxl.float8_152}[format]
    for scale in (-2, 0, 3):
        code = popxl.fp8_utils.host_pow2scale_cast_to_fp8(
            numbers, type, scale, nan_on_overflow=False
        )
        expected = popxl.fp8_utils.host_pow2scale_cast_from_fp8(code, popxl.float32, -scale)
        rounded = reference.fp8_rounded(torch.from_numpy(numbers), format, scale)
        np.testing.assert_array_equal(rounded.numpy(), expected)

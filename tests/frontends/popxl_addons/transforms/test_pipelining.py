"""Pipelines of stages against the same operations, one micro-batch after another."""

import numpy as np
import pytest

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.transforms.pipelining import Pipelining
from tremula.frontends.popxl_addons.transforms.pipelining import pipeline_shape

STEPS = 6


@pytest.mark.parametrize("transfers_apart", [False, True])
def test_stages_pass_values_on(monkeypatch, transfers_apart):
    """Three stages, a value that waits for the last one, and a sum that all micro-batches enter."""
    monkeypatch.setattr(Pipelining, "transfers_apart", transfers_apart)
    ir = popxl.Ir()
    ir.num_host_transfers = STEPS
    data = np.arange(STEPS * 2, dtype=np.float32).reshape(STEPS, 2)
    with ir.main_graph, popxl.in_sequence(True):
        given, taken = (f((2,), popxl.float32) for f in (popxl.h2d_stream, popxl.d2h_stream))
        total = popxl.variable(np.zeros(2, np.float32))
        with addons.pipelined_execution(STEPS) as pipeline:
            with pipeline.stage(0), popxl.ipu(0):
                x = ops.host_load(given)
                y = ops.ipu_copy(x * 2, 1)
            with pipeline.stage(1), popxl.ipu(1):
                z = ops.ipu_copy(y + 1, 2)
            with pipeline.stage(2), popxl.ipu(2):
                again = pipeline.stash_and_restore_tensor(x)
                result = z * again
                ops.var_updates.accumulate_(total, result)
                ops.host_store(taken, result)
    with popxl.Session(ir, "cpu") as session:
        matches = session.run({given: data})[taken]
        expected = (data * 2 + 1) * data
        np.testing.assert_array_equal(matches, expected)
        np.testing.assert_array_equal(session.get_tensor_data(total), expected.sum(0))


def test_what_pipelines_refuse():
    """Too few steps, operations outside of stages, values that skip a stage."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence(True):
        x = popxl.variable(np.zeros(2, np.float32))
        with (
            pytest.raises(ValueError, match="twice as many steps"),
            addons.pipelined_execution(1) as pipeline,
            pipeline.stage(0),
        ):
            _ = x + 1
        with pytest.raises(RuntimeError, match="outside of a stage"), addons.pipelined_execution(4):
            _ = x + 1
        with pytest.raises(ValueError, match="stash_and_restore_tensor"):
            skipping_a_stage(x)


def skipping_a_stage(x):
    with addons.pipelined_execution(8) as pipeline:
        with pipeline.stage(0):
            y = x + 1
        with pipeline.stage(1):
            _ = x + 2
        with pipeline.stage(2):
            _ = y + 3


@pytest.mark.parametrize(("n_stages", "n_steps", "n_cycles"), [(3, 4, 6), (5, 5, 9), (5, 8, 12)])
def test_the_timetable(n_stages, n_steps, n_cycles):
    """Stage s of cycle c works on micro-batch c - s: each micro-batch passes all stages once."""
    table = pipeline_shape(n_stages, n_steps)
    assert table.shape == (n_stages, n_cycles)
    for stage, row in enumerate(table):
        assert row[row >= 0].tolist() == list(range(n_steps))
        assert np.flatnonzero(row >= 0)[0] == stage

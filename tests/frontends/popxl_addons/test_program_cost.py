"""What programs take: chips of a pipeline, and I/O tiles, work while others do."""

import numpy as np
import pytest

import popxl
import popxl_addons as addons
from popxl import ops
from tremula.frontends.popxl_addons.program_cost import ProgramCost, cost_of_program
from tremula.frontends.popxl_addons.tile_cost import TileOptions

STEPS = 8


def pipeline(chips: tuple[int, ...]) -> popxl.Ir:
    """Stages of equal work, on these chips."""
    ir = popxl.Ir()
    ir.num_host_transfers = STEPS
    with ir.main_graph, popxl.in_sequence(True):
        stream = popxl.h2d_stream((8, 32), popxl.float32)
        result = popxl.d2h_stream((8, 32), popxl.float32)
        w = popxl.variable(np.ones((32, 32), np.float32))
        with addons.pipelined_execution(STEPS) as stages:
            with stages.stage(0), popxl.ipu(chips[0]):
                x = ops.host_load(stream)
            for i, chip in enumerate(chips):
                with stages.stage(i), popxl.ipu(chip):
                    x = ops.tanh(x @ w)
                    if i + 1 < len(chips) and chips[i + 1] != chip:
                        x = ops.ipu_copy(x, chips[i + 1])
                    if i + 1 == len(chips):
                        ops.host_store(result, x)
    return ir


def cycles(chips: tuple[int, ...]) -> tuple[int, list[int]]:
    """Of a run, and of each stage alone."""
    cost = cost_of_program(pipeline(chips), TileOptions(n_tiles=4))
    phases = [f"pipeline_stage_{i}" for i in range(len(chips))]  # once while it fills or drains
    alone = [sum(p.cycles for p in cost.parts if p.phase == phase) for phase in phases]
    return cost.total_cycles, alone


def test_stages_on_different_chips_overlap():
    """On one chip stages take turns; on two, each cycle takes as long as its slower stage."""
    total, (first, second) = cycles((0, 0))
    assert total == STEPS * (first + second)
    total, (first, second) = cycles((0, 1))
    assert min(first, second) > 0
    assert total == first + (STEPS - 1) * max(first, second) + second


ROUNDS = 6


def micro_batches(io_mode: str, n_columns: int, n_io_tiles: int = 2) -> ProgramCost:
    """Rows loaded from and stored to remote memory, a product in between, round by round."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence(True):
        x = popxl.TensorSpec((64, n_columns), popxl.float32)
        w = popxl.variable(np.ones((n_columns, n_columns), np.float32))
        graph = addons.GraphWithNamedArgs(ir.create_graph(lambda x, w: ops.tanh(x @ w), x, w.spec))
        loaded, stored = (addons.batch_serial_buffer(x, ROUNDS) for _ in range(2))
        serial = addons.batch_serialise(
            graph, ROUNDS, {graph.graph.inputs[0]: loaded}, {},
            {graph.graph.outputs[0]: stored}, io_mode=io_mode,
        )  # fmt: skip
        serial.graph.call(0, w)
    return cost_of_program(ir, TileOptions(n_tiles=8, n_io_tiles=n_io_tiles))


def round_of(cost: ProgramCost) -> tuple[int, int, int]:
    """Of the loop's rounds: cycles of transfers, of them hidden, and of the product."""
    parts = [p for p in cost.parts if p.name.endswith(("micro_batch_io", "_io_overlapped"))]
    moved = [p for p in parts if p.kind == "streaming memory"]
    assert len(moved) == 2
    called = [p for p in cost.parts if "lambda" in p.name and p.n_times == moved[0].n_times]
    return (
        sum(p.cycles for p in moved), sum(p.hidden_cycles for p in moved),
        sum(p.cycles for p in called),
    )  # fmt: skip


@pytest.mark.parametrize("n_columns", [8, 512])
def test_io_tiles_hide_transfers(n_columns):
    """A round takes as long as its transfers or its product, whichever takes longer."""
    cost = micro_batches("io_overlapped", n_columns)
    transfers, hidden, computed = round_of(cost)
    assert hidden == min(transfers, computed) > 0
    assert (transfers > computed) == (n_columns == 8)
    phase = cost.phases[0]
    assert cost.hidden_seconds(phase) * cost.clock_hz == pytest.approx((ROUNDS - 2) * hidden)


def test_what_io_tiles_do_not_hide():
    """Nothing is hidden if a round needs what it loads, or if no tiles were set aside."""
    transfers, hidden, _ = round_of(micro_batches("io", 32))
    assert transfers > 0 == hidden
    assert round_of(micro_batches("io_overlapped", 32, n_io_tiles=0))[1] == 0


@pytest.mark.parametrize(("in_order", "merged"), [(True, False), (False, False), (False, True)])
def test_order_forbids_what_data_would_allow(in_order, merged):
    """A load that nothing here reads runs beside a call, unless `in_sequence` wants it before."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence(in_order):
        buffer = popxl.remote_buffer((256,), popxl.float32, 4)
        x = popxl.variable(np.ones((64, 64), np.float32))
        graph = ir.create_graph(lambda t: t @ t, x)
        with popxl.io_tiles(), popxl.in_sequence("pass"):
            if merged:
                with popxl.transforms.merge_exchange():
                    loads = [ops.remote_load(buffer, i) for i in range(3)]
            else:
                loads = [ops.remote_load(buffer, i) for i in range(3)]
        ops.call(graph, x)
        out = popxl.d2h_stream((256,), popxl.float32)
        ops.host_store(out, loads[0])
    cost = cost_of_program(ir, TileOptions(n_tiles=8, n_io_tiles=2))
    moved = [p for p in cost.parts if p.kind == "streaming memory"]
    assert len(moved) == (1 if merged else 3)
    assert [p.n_bytes for p in moved] == [3 * 1024] if merged else [1024] * 3
    assert any(p.hidden_cycles for p in moved) != in_order

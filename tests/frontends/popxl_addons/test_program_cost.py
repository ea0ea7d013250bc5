"""What programs take: chips of a pipeline work at the same time."""

import numpy as np

import popxl
import popxl_addons as addons
from popxl import ops
from tremula.frontends.popxl_addons.program_cost import cost_of_program
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

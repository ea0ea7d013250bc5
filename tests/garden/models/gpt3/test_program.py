"""The 175B program, built without a weight, against the tables; costs of the tiny one."""

import math
from collections import Counter
from dataclasses import replace

import pytest

from tests.garden.models.gpt3.test_config import FOLDER
from tremula.frontends.popxl_addons.tile_cost import TileOptions
from tremula.garden.models.gpt3.config import Parallelism, load_config
from tremula.garden.models.gpt3.costing import CompiledGPT, compile_gpt, lines_of
from tremula.garden.models.gpt3.program import GPTProgram
from tremula.garden.models.gpt3.tables import (
    BACKWARD,
    FORWARD,
    head_all_reduces,
    layer_all_reduces,
    streaming_rows,
)
from tremula.garden.models.gpt3.training import no_data


@pytest.fixture(scope="module")
def large():
    config = load_config(FOLDER / "175b_pod256.toml")
    return GPTProgram(config, no_data(config), empty=True)


def all_reduces(graph):
    """Sizes and groups of the all-reduces of a graph, as often as they are there."""
    return Counter(
        (op.outputs[0].nelms, op.attributes["group"].stride)
        for op in graph.ops
        if op.kind in ("ReplicatedAllReduceTP", "ReplicatedAllReduce")
    )


def expected(rows, direction, config):
    stride = {"tp1": config.parallel.tensor_2, "tp2": 1}
    return Counter(
        (math.prod(row.shape), stride[row.group]) for row in rows if row.direction == direction
    )


def test_collectives_of_the_graphs_are_those_of_the_tables(large):
    """Each all-reduce of a layer and of the head, in both directions: its size and its group."""
    config = large.config
    rows = layer_all_reduces(config)
    backward = large.layer_gradient.graph.called_graphs[-1]
    assert all_reduces(large.layer_graph.graph) == expected(rows, FORWARD, config)
    assert all_reduces(backward) == expected(rows, BACKWARD, config)
    forward, backward = large.head_graph.graph.called_graphs
    rows = head_all_reduces(config)
    assert all_reduces(forward) == expected(rows, FORWARD, config)
    assert all_reduces(backward) == expected(rows, BACKWARD, config)


def test_buffers_are_those_of_the_tables(large):
    """Streaming memory of each kind is what the table counts, to 1 %; no weight was made."""
    result = CompiledGPT(large.config, large, None, 0.0).streaming_rows()  # type: ignore[arg-type]
    for row, counted in zip(result, streaming_rows(large.config), strict=True):
        assert row.item == counted.item
        assert row.n_bytes == pytest.approx(counted.n_bytes, rel=0.01)
    total = sum(buffer.n_bytes for buffer in large.ir.remote_buffers)
    assert total == pytest.approx(sum(row.n_bytes for row in result), rel=0.01)


@pytest.mark.slow
def test_a_small_program_is_costed(tmp_path):
    """All phases have a time, links carry what layers reduce, and the analyser gets a report."""
    config = load_config(FOLDER / "tiny.toml")
    config = replace(
        config,
        model=replace(config.model, n_layers=1),
        parallel=Parallelism(data=1, tensor_1=2),
    )
    compiled = compile_gpt(config, TileOptions(n_tiles=8))
    cost = compiled.cost
    assert [p for p in cost.phases if p.startswith("layers")] == [
        "layers_forward", "layers_backward", "layers_update"
    ]  # fmt: skip
    assert sum(cost.seconds(phase) for phase in cost.phases) == pytest.approx(cost.total_seconds)
    assert cost.seconds("layers_backward") > cost.seconds("layers_forward") > 0
    # Two all-reduces of rows over two chips, each way: half of it in each direction, twice.
    n_rows = config.n_rows * config.model.hidden * 4 * config.accumulation
    assert sum(cost.link_bytes("layers_forward").values()) >= 2 * n_rows
    assert cost.transfer_bytes("layers_update") > 0
    text = "\n".join(lines_of(compiled))
    assert "tokens per second, modelled" in text
    assert "fits" in text
    assert compiled.write_report(tmp_path).stat().st_size > 0

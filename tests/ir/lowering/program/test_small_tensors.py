"""Small tensors of an update: spread over the tiles, and brought to other chips together."""

import re
from collections import Counter

import numpy as np
import torch
from torch import nn

import poptorch
from tests.ir.steps import captured
from tremula.base.types import FLOAT
from tremula.frontends.poptorch.optim.rule import rule_from
from tremula.ir.lowering.options import LoweringOptions
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.lowering.start_tiles import spread_if_small
from tremula.ir.passes import TILE_PASSES, apply
from tremula.ir.step import BUFFER, PARAMETER
from tremula.poplar.graph import Graph
from tremula.poplar.target import IPUModel
from tremula.poplar.tensors.tensor import variable_tensor

N_LAYERS = 4


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dense = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x):
        return self.dense(self.norm(x))


class _Layers(nn.Module):
    """Layers, each on a separate chip or all on one."""

    def __init__(self, is_placed: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer() for _ in range(N_LAYERS))
        for chip, layer in enumerate(self.layers):
            if is_placed:
                poptorch.BeginBlock(layer, f"layer{chip}", ipu_id=chip)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return poptorch.identity_loss(x.square(), "mean")


def _built(n_chips: int):
    model = _Layers(n_chips > 1)
    rule = rule_from(torch.optim.AdamW(model.parameters()), model.named_parameters())
    step = apply(captured(model, torch.zeros(8, 16), rule=rule), TILE_PASSES)
    blocks = tuple(range(n_chips)) if n_chips > 1 else ()
    schedule = Schedule(chip_of_block=blocks)
    target = IPUModel("bow", n_chips, tiles_per_ipu=64).create_device().target
    return step, build_tile_program(step, target, schedule, LoweringOptions())


def test_running_means_and_variances_begin_at_different_tiles():
    """The copies that renew them are not all on the first tiles of a chip."""
    model = nn.Sequential(nn.BatchNorm1d(64), nn.BatchNorm1d(64))
    step = apply(captured(model, torch.zeros(8, 64)), TILE_PASSES)
    target = IPUModel("bow", 1, tiles_per_ipu=64).create_device().target
    built = build_tile_program(step, target, Schedule(), LoweringOptions())
    handles, first_tiles = built.graph.state.handles.reads, {}
    for slot in step.inputs:
        if slot.kind == BUFFER and slot.name.endswith(("running_mean", "running_var")):
            held = handles[built.state_handles[BUFFER, slot.index].handle]
            tiles = built.graph.get_tile_mapping(held).tile
            first_tiles.setdefault(slot.name.rpartition(".")[2], set()).add(int(tiles[0]))
    assert len(first_tiles) == 2
    assert first_tiles["running_mean"] != first_tiles["running_var"]


def test_vectors_of_a_layer_begin_at_different_tiles():
    """And those of other layers at the same ones, so that layers can share code."""
    step, built = _built(1)
    handles, tiles_of = built.graph.state.handles.reads, {}
    for slot in step.inputs:
        if slot.kind == PARAMETER and not slot.name.endswith("dense.weight"):
            mapping = built.graph.get_tile_mapping(
                handles[built.state_handles[PARAMETER, slot.index].handle]
            )
            of_all_layers = re.sub(r"\d", "", slot.name)
            tiles_of.setdefault(of_all_layers, []).append(tuple(np.unique(mapping.tile).tolist()))
    assert len(tiles_of) == 3
    assert all(len(tiles) == N_LAYERS and len(set(tiles)) == 1 for tiles in tiles_of.values())
    assert len({tiles[0] for tiles in tiles_of.values()}) == 3


def test_scalar_constants_do_not_pile_up_on_one_tile():
    """PopART takes the next tile for each, so that no tile has the code of all that reads them."""
    _, built = _built(1)
    variables, graph = built.graph.state.variables, built.graph
    tiles = [
        int(graph.get_tile_mapping(variable_tensor(variables, number)).tile[0])
        for number, shape in enumerate(variables.shapes)
        if shape == ()
        and (variables.is_constant[number] or "micro_batch" in variables.names[number])
    ]
    assert len(tiles) > 4
    assert max(Counter(tiles).values()) <= len(tiles) / 2


def test_tensors_over_all_tiles_begin_at_the_first():
    """So operands of the same shape lie on the same tiles."""
    graph = Graph(IPUModel("bow", 1, tiles_per_ipu=4).create_device().target)
    large = [spread_if_small(graph, FLOAT, [4 * 64], name) for name in ("a", "b")]
    small = [spread_if_small(graph, FLOAT, [32], name) for name in ("a", "b", "layers.1/b")]
    assert [int(graph.get_tile_mapping(x).tile[0]) for x in large] == [0, 0]
    begins = [int(graph.get_tile_mapping(x).tile[0]) for x in small]
    assert begins[0] != begins[1]
    same = spread_if_small(graph, FLOAT, [32], "layers.2/b")
    assert int(graph.get_tile_mapping(same).tile[0]) == begins[2]


def test_scalars_of_all_weights_cross_to_a_chip_together():
    """What follows from the numbers of steps are two vectors: not two scalars for each weight."""
    _, built = _built(N_LAYERS)
    variables = built.graph.state.variables
    copied = [
        shape
        for name, shape in zip(variables.names, variables.shapes, strict=True)
        if name.endswith("/copy") and len(shape) < 2
    ]
    n_weights, n_other_chips = 4 * N_LAYERS, N_LAYERS - 1
    assert copied.count((n_weights,)) == 2 * n_other_chips
    assert copied.count(()) == n_other_chips  # 1 - lr * decay, which all weights share
    assert len(copied) == 3 * n_other_chips

"""Groups of replicas and shapes of shards, against places written out."""

import itertools

import numpy as np
import pytest

from tests.garden.models.gpt3.test_config import FOLDER
from tremula.base.replica_group import ReplicaGroup
from tremula.garden.models.gpt3.config import Parallelism, load_config
from tremula.garden.models.gpt3.layout import (
    SPLITS,
    communication_groups,
    embedding_weights,
    layer_weights,
    places,
    shard_elements,
    sharing_group,
    value_assignment,
)

SHAPES = [(1, 1, 1), (2, 2, 2), (4, 2, 3), (2, 4, 1), (1, 2, 4), (4, 8, 8)]


def members(group: ReplicaGroup, n: int) -> list[list[int]]:
    """Groups of replicas by brute force: fill each from the lowest replica that is left."""
    left, result = set(range(n)), []
    while left:
        first = min(left)
        result.append([first + i * group.stride for i in range(group.size)])
        left -= set(result[-1])
    return result


@pytest.mark.parametrize("shape", SHAPES)
def test_communication_groups_vary_one_place(shape):
    """Members of a group differ in exactly the place the group is named after."""
    parallel = Parallelism(data=shape[0], tensor_1=shape[1], tensor_2=shape[2])
    at = places(parallel)
    varies = {"dp": (0,), "tp1": (1,), "tp2": (2,), "tp_all": (1, 2)}
    for name, group in communication_groups(parallel).items():
        fixed = [axis for axis in range(3) if axis not in varies[name]]
        for replicas in members(group, parallel.n_replicas):
            assert len({tuple(at[r][fixed]) for r in replicas}) == 1
            assert len({tuple(at[r]) for r in replicas}) == group.size


@pytest.mark.parametrize(("shape", "split"), list(itertools.product(SHAPES, SPLITS)))
def test_sharers_hold_the_same_part(shape, split):
    """Replicas that share a weight out hold the same part of it, whatever way it is split."""
    parallel = Parallelism(data=shape[0], tensor_1=shape[1], tensor_2=shape[2])
    part = value_assignment(parallel, split)
    for replicas in members(sharing_group(parallel, split), parallel.n_replicas):
        assert len({part[r] for r in replicas}) == 1


def test_groups_of_the_pod256():
    """Strides and sizes for 4 · 8 · 8 replicas."""
    parallel = Parallelism(data=4, tensor_1=8, tensor_2=8)
    assert communication_groups(parallel) == {
        "tp1": ReplicaGroup(size=8, stride=8),
        "tp2": ReplicaGroup(size=8, stride=1),
        "tp_all": ReplicaGroup(size=64, stride=1),
        "dp": ReplicaGroup(size=4, stride=64),
    }
    assert sharing_group(parallel, "tp2") == ReplicaGroup(size=32, stride=8)
    assert sharing_group(parallel, "tp1") == ReplicaGroup(size=8, stride=1)
    assert len(set(value_assignment(parallel, "both"))) == 64


def test_shards_of_the_175b():
    """A layer is 28,311,552 elements of matrices and 19,968 of vectors; tables are padded."""
    config = load_config(FOLDER / "175b_pod256.toml")
    weights = layer_weights(config)
    assert sum(w.n_elements for w in weights if len(w.shape) == 2) == 28_311_552
    assert sum(w.n_elements for w in weights if len(w.shape) == 1) == 19_968
    word, position = embedding_weights(config)
    assert word.shape == (6288, 1536)
    assert position.shape == (256, 1536)
    matrices = [w for w in weights if w.split == "both"]
    shards = 96 * sum(shard_elements(w, config.parallel) for w in matrices)
    assert shards == 679_477_248


def test_parts_cover_the_dense_model():
    """Parts of all weights of a layer are the dense layer, each element in one part."""
    config = load_config(FOLDER / "175b_pod256.toml")
    n_parts = {s: max(value_assignment(config.parallel, s)) + 1 for s in SPLITS}
    total = sum(w.n_elements * n_parts[w.split] for w in layer_weights(config))
    assert total == config.n_layer_parameters
    assert np.prod((4, 8, 8)) == config.parallel.n_replicas

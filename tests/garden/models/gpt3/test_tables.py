"""Memory of a chip and collectives of a layer, against the numbers written down for 175B."""

import pytest

from tests.garden.models.gpt3.test_config import FOLDER
from tremula.garden.models.gpt3.config import load_config
from tremula.garden.models.gpt3.tables import (
    BACKWARD,
    FORWARD,
    attention_all_reduces,
    chip_rows,
    feed_forward_all_reduces,
    head_all_reduces,
    layer_all_reduces,
    one_dimensional_all_reduces,
    ring_bytes,
    streaming_rows,
)

MIB, GIB = 2**20, 2**30


@pytest.fixture(scope="module")
def config():
    return load_config(FOLDER / "175b_pod256.toml")


@pytest.mark.parametrize(
    ("item", "mib"),
    [
        ("decoder layer, gathered", 54.04),
        ("gradients of a decoder layer", 54.04),
        ("activation between layers", 6.0),
        ("stored shard of an activation", 0.75),
        ("attention scores", 96),
        ("attention scores, serialised", 12),
        ("queries, keys, values", 18),
        ("feed-forward activation", 24),
        ("word table, gathered", 18.4),
        ("logits", 24.6),
    ],
)
def test_tensors_on_the_chip(config, item, mib):
    """Each tensor of a phase has the size that the table gives, within 1 %."""
    result = {row.item: row.n_bytes for row in chip_rows(config)}
    assert result[item] / MIB == pytest.approx(mib, rel=0.01)


@pytest.mark.parametrize(
    ("item", "gib"),
    [
        ("decoder weights", 1.27),
        ("decoder gradients", 1.27),
        ("decoder moments", 5.06),
        ("activations", 2.27),
        ("gradients of activations", 2.27),
    ],
)
def test_streaming_memory(config, item, gib):
    """Shards of weights, gradients, moments and activations, within 1 %."""
    result = {row.item: row.n_bytes for row in streaming_rows(config)}
    assert result[item] / GIB == pytest.approx(gib, rel=0.01)


def test_streaming_memory_of_a_machine(config):
    """About 12.2 GiB for each chip, 48.7 GiB for the four of a machine."""
    total = sum(row.n_bytes for row in streaming_rows(config)) / GIB
    assert total == pytest.approx(12.2, rel=0.01)
    assert 4 * total == pytest.approx(48.7, rel=0.01)


def of(rows, direction):
    return [r for r in rows if r.direction == direction and not r.is_statistic]


def test_counts_of_collectives(config):
    """Two each way in attention and in the feed-forward, eight for a layer, five for the head."""
    for rows in (attention_all_reduces(config), feed_forward_all_reduces(config)):
        assert len(of(rows, FORWARD)) == len(of(rows, BACKWARD)) == 2
        assert sum(r.is_statistic for r in rows) == 2
    layer = layer_all_reduces(config)
    assert len(of(layer, FORWARD) + of(layer, BACKWARD)) == 8
    assert sum(not r.is_statistic for r in head_all_reduces(config)) == 5
    assert len(one_dimensional_all_reduces(config)) == 4


def test_payload_of_a_layer(config):
    """18 + 6 + 24 + 6 MiB forward over groups of 8, against 2 × 48 MiB over 64 in one dimension."""
    forward = [r.n_bytes(2) / MIB for r in of(layer_all_reduces(config), FORWARD)]
    assert forward == [18, 6, 24, 6]
    assert sum(ring_bytes(int(n * MIB), 8) for n in forward) / MIB == pytest.approx(94, rel=0.01)
    plain = [r.n_bytes(2) for r in of(one_dimensional_all_reduces(config), FORWARD)]
    assert [n / MIB for n in plain] == [48, 48]
    assert sum(ring_bytes(n, 64) for n in plain) / MIB == pytest.approx(189, rel=0.01)

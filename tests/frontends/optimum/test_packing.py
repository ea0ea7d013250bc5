"""Packing: every sentence in one row only, and counted as if it were alone; weights of 4 bits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

import poptorch
from optimum.graphcore import (
    IncompatibleIPUConfigError,
    PackedBertForSequenceClassification,
    PackedDataset,
    pack_lengths,
)
from optimum.graphcore.quantization import (
    GroupQuantizedLinear,
    group_dequantize,
    group_quantize,
    group_quantize_model,
)
from tremula.frontends.optimum.errors import NotPipelinable
from tremula.garden.models.tiny_transformers import tiny_config
from tremula.ir.settings import configured


@settings(max_examples=30)
@given(st.lists(st.integers(1, 16), min_size=1, max_size=60), st.integers(1, 5))
def test_rows_hold_what_fits(lengths, max_sequences):
    """Each sentence is in one row; no row has too many words or sentences."""
    result = pack_lengths(lengths, 16, max_sequences)
    members = [member for row in result.members for member in row]
    assert sorted(members) == list(range(len(lengths)))
    for row in result.members:
        assert sum(lengths[i] for i in row) <= 16
        assert len(row) <= max_sequences
    assert 0 < result.efficiency <= 1


def test_wrong_lengths_are_named():
    """A sentence longer than a row, or empty, cannot be packed."""
    with pytest.raises(IncompatibleIPUConfigError, match="sentence 1 has 9 words"):
        pack_lengths([3, 9], 8)
    with pytest.raises(IncompatibleIPUConfigError, match="at least one word"):
        pack_lengths([], 8)
    with pytest.raises(NotPipelinable, match="Linear cannot be packed"):
        PackedBertForSequenceClassification(nn.Linear(1, 1))


def _sentences(n=20):
    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, 12, (n,), generator=draw).tolist()
    rows = [torch.randint(3, 60, (length,), generator=draw) for length in lengths]
    return [{"input_ids": words, "labels": i % 2} for i, words in enumerate(rows)]


@pytest.mark.slow
def test_packed_scores_equal_single_ones():
    """Words of one sentence never see another: scores are those of each by itself; it trains."""
    torch.manual_seed(0)
    model = BertForSequenceClassification(tiny_config(BertConfig)).eval()
    sentences = _sentences()
    data = PackedDataset(sentences, max_length=24, max_sequences=4)
    packed = PackedBertForSequenceClassification(model)
    batch = {k: torch.stack([row[k] for row in data]) for k in data[0]}
    logits = packed(**batch).logits
    for row, members in enumerate(data.packing.members):
        for index, member in enumerate(members):
            alone = model(sentences[member]["input_ids"][None]).logits[0]
            torch.testing.assert_close(logits[row, index], alone, rtol=1e-5, atol=1e-6)
    executor = poptorch.trainingModel(packed, None, poptorch.optim.SGD(packed.parameters(), lr=0.5))
    losses = [float(executor(**batch).loss) for _ in range(3)]
    assert losses[2] < losses[0]


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_quantised_weights_are_near(seed):
    """No weight moves by more than half a step of its group."""
    weight = torch.randn(6, 32, generator=torch.Generator().manual_seed(seed))
    packed, scale, bias = group_quantize(weight, 16)
    error = (group_dequantize(packed, scale, bias) - weight).abs().reshape(6, 2, 16)
    assert bool((error <= scale.unsqueeze(-1) * 0.5001 + 1e-6).all())
    assert packed.shape == (6, 16)
    assert packed.dtype is torch.uint8


def test_quantised_models_compute_what_their_weights_say():
    """A layer of 4 bits equals the layer with the weights it represents, compiled too."""
    torch.manual_seed(0)
    linear, x = nn.Linear(64, 8), torch.randn(3, 64)
    layer = GroupQuantizedLinear(linear, 32)
    weight = group_dequantize(layer.packed, layer.scale, layer.offset)
    expected = nn.functional.linear(x, weight, linear.bias).detach()
    torch.testing.assert_close(poptorch.inferenceModel(layer)(x), expected)
    with configured(tiles="run"):  # the tile program decompresses them, vertex by vertex
        torch.testing.assert_close(poptorch.inferenceModel(layer)(x), expected)
    model = group_quantize_model(nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 2)), 32)
    assert isinstance(model[0], GroupQuantizedLinear)
    assert isinstance(model[1], nn.Linear)
    with pytest.raises(IncompatibleIPUConfigError, match="has no groups of 48"):
        group_quantize(linear.weight, 48)

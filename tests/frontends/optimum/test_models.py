"""Pipelined models: the same numbers as transformers', whatever is cut and placed."""

import copy

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM

import optimum.graphcore as og
import poptorch
from optimum.graphcore import IncompatibleIPUConfigError, IPUConfig
from optimum.graphcore.modeling_utils import (
    OnehotGather,
    SerializedEmbedding,
    SerializedLinear,
    SharedEmbedding,
    SplitProjection,
    to_pipelined,
)
from tests.sampling import one_in
from tremula.frontends.optimum.errors import NotPipelinable
from tremula.frontends.optimum.models.placing import layers_of
from tremula.frontends.optimum.training.executors import ComputedLoss
from tremula.garden.models.tiny_families import CLASSES, FAMILIES, tiny_family_model
from tremula.ir.settings import configured

ONE_EACH = [names[-1] for names in FAMILIES.values()]


def _outputs(model, batch):
    with torch.no_grad():
        result = model(**batch)
    return {k: v for k, v in result.items() if isinstance(v, torch.Tensor)}


def _marks(model):
    """How many hooks each part has: weight norms add some."""
    return [len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()]


def _check_family(name):
    """Cut and placed, a model computes what it did; one update goes on from the same loss."""
    tiny = tiny_family_model(name)
    expected = _outputs(tiny.model.eval(), tiny.batch)
    n_layers = len(layers_of(tiny.model))
    config = IPUConfig(layers_per_ipu=[n_layers - 1, 1], recompute_checkpoint_every_layer=True)
    pipelined = to_pipelined(tiny.model, config).parallelize()
    for key, value in _outputs(pipelined, tiny.batch).items():
        torch.testing.assert_close(value, expected[key], rtol=1e-5, atol=1e-5)
    options = poptorch.Options()
    options.Training.gradientAccumulation(5)  # as many as forward, backward and head have stages
    trained = ComputedLoss(pipelined)  # in eval mode: nothing is dropped, so losses can be compared
    executor = poptorch.trainingModel(
        trained, options, poptorch.optim.SGD(trained.parameters(), lr=0.1)
    )
    batch = {k: torch.cat([v] * 5) for k, v in tiny.batch.items()}
    losses = [float(executor(**batch)) for _ in range(2)]
    executor.destroy()
    assert losses[0] == pytest.approx(float(expected["loss"]), rel=1e-4)
    assert losses[1] < losses[0]
    pipelined.deparallelize()
    assert _marks(pipelined) == _marks(tiny.model)
    assert "forward" not in vars(pipelined)


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(3, ONE_EACH))
def test_one_class_of_each_family(name):
    """Every family trains over two IPUs, from the loss transformers finds."""
    _check_family(name)


@pytest.mark.wide
@pytest.mark.parametrize("name", [name for name in CLASSES if name not in ONE_EACH])
def test_the_other_classes(name):
    """So do the other classes."""
    _check_family(name)


@pytest.mark.wide
@pytest.mark.parametrize("name", CLASSES)
def test_every_class_compiles_for_tiles(name):
    """The tile program of each class is as good as its host program."""
    tiny = tiny_family_model(name)
    pipelined = to_pipelined(tiny.model.eval(), IPUConfig()).parallelize()
    expected = _outputs(pipelined, tiny.inference_batch)
    with configured(tiles="run"):
        executor = poptorch.inferenceModel(pipelined, poptorch.Options())
        result = executor(**tiny.inference_batch)
        executor.destroy()
    for key, value in expected.items():
        torch.testing.assert_close(result[key].float(), value.float(), rtol=1e-2, atol=1e-2)


def test_layer_drop_is_a_choice_on_the_device():
    """Layers are dropped in about the requested share, and never in evaluation."""
    tiny = tiny_family_model("HubertForSequenceClassification")
    tiny.model.config.layerdrop = 0.5
    pipelined = to_pipelined(tiny.model, IPUConfig()).parallelize()
    assert pipelined.config.layerdrop == 0.0
    layer = layers_of(pipelined)[0].train()
    x = torch.randn(1, 4, 16)
    result = layer.eval()(x)
    torch.manual_seed(0)
    results = [layer.train()(x) for _ in range(100)]
    dropped = sum(bool(torch.equal(r, x)) for r in results)
    assert 30 < dropped < 70
    assert not torch.equal(result, x)
    assert pipelined.deparallelize().config.layerdrop == 0.5


def _bert(**fields):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16, **fields,
    )  # fmt: skip
    return BertForMaskedLM(config).eval()


@pytest.mark.parametrize(
    ("fields", "tied"),
    [
        ({"embedding_serialization_factor": 2}, True),
        ({"embedding_serialization_factor": 3}, False),
        ({"serialized_embedding_splits_per_ipu": [2, 1]}, False),
        ({"projection_serialization_factor": 4}, False),
        ({"serialized_projection_splits_per_ipu": [1, 2]}, False),
    ],
)
def test_tables_in_parts(fields, tied):
    """However the vocabulary is cut, results and saved weights are the same."""
    model = _bert(tie_word_embeddings=tied)
    ids = torch.randint(0, 64, (2, 8))
    expected = model(input_ids=ids).logits
    before = copy.deepcopy(model.state_dict())
    pipelined = to_pipelined(model, IPUConfig(layers_per_ipu=[1, 1], **fields)).parallelize()
    torch.testing.assert_close(pipelined(input_ids=ids).logits, expected, rtol=1e-5, atol=1e-5)
    pipelined.deparallelize()
    after = pipelined.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_parts_by_themselves():
    """Cut tables and products equal whole ones; gathers by ones and zeros equal indexing."""
    table, ids = nn.Embedding(10, 4), torch.tensor([[0, 3, 9], [5, 6, 7]])
    torch.testing.assert_close(SerializedEmbedding(table, 3)(ids), table(ids))
    assert torch.equal(SerializedEmbedding(table, 3).deserialize().weight, table.weight)
    linear, x = nn.Linear(12, 8), torch.randn(5, 12)
    for mode in ("OutputChannels", "ReducingDim"):
        chosen = getattr(poptorch.MatMulSerializationMode, mode)
        split = SplitProjection(linear, [1, 2], chosen)
        torch.testing.assert_close(split(x), linear(x), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(split.deserialize()(x), linear(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(SerializedLinear.from_model(linear, 4)(x), linear(x))
    with pytest.raises(IncompatibleIPUConfigError, match="cannot be cut into 3 equal parts"):
        SerializedLinear.from_model(linear, 3)
    rows, places = torch.randn(2, 6, 4), torch.tensor([[0, 5], [2, 2]])
    torch.testing.assert_close(OnehotGather()(rows, places), rows[torch.arange(2)[:, None], places])
    first, second = SharedEmbedding(table)(ids, ids[:, :2])
    assert torch.equal(first, table(ids))
    assert torch.equal(second, table(ids[:, :2]))


def test_classes_by_name():
    """Any model of transformers has a pipelined class; others are an error with a hint."""
    kind = og.PipelinedBertForMaskedLM
    assert issubclass(kind, BertForMaskedLM)
    assert kind is og.PipelinedBertForMaskedLM
    with pytest.raises(AttributeError, match="PipelinedBertForMaskedLM"):
        og.PipelinedBertForMaskLM  # noqa: B018
    with pytest.raises(AttributeError, match="IPUTrainer"):
        og.IPUTrainr  # noqa: B018
    with pytest.raises(NotPipelinable, match="no list of equal layers"):
        to_pipelined(nn.Linear(1, 1), IPUConfig())
    assert isinstance(to_pipelined(nn.Linear(1, 1), IPUConfig(), force=True), nn.Linear)


def test_weights_on_disk(tmp_path):
    """A pipelined model loads what transformers saved."""
    model = _bert()
    model.save_pretrained(tmp_path)
    loaded = og.PipelinedBertForMaskedLM.from_pretrained_transformers(tmp_path, IPUConfig())
    ids = torch.randint(0, 64, (2, 8))
    assert torch.equal(loaded.eval()(input_ids=ids).logits, model(input_ids=ids).logits)

"""Training steps of many models: a sample of them in every run, all of them in `make test-wide`."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.frontends.poptorch import model_sweep
from tests.frontends.poptorch.model_sweep import HOST, TILES
from tests.sampling import one_in

pytestmark = pytest.mark.slow

_HOST_SAMPLE = (
    "BertForSequenceClassification", "GPT2LMHeadModel", "MobileNet v3", "Swin", "U-Net",
    "T5ForConditionalGeneration",
)  # fmt: skip
_N_SHARDS = 24


@pytest.mark.parametrize("name", one_in(2, _HOST_SAMPLE))
def test_models_train_as_in_pytorch_on_the_host(name):
    """Loss and updated weights of one step equal those of plain PyTorch."""
    assert not model_sweep.failures(model_sweep.check(name, [HOST]))


@pytest.mark.slow
def test_a_model_trains_as_in_pytorch_on_tiles():
    """Loss and updated weights of a step on tiles equal those of plain PyTorch."""
    assert not model_sweep.failures(model_sweep.check("MLP-Mixer", [TILES]))


def test_wrong_losses_updates_and_nans_are_found():
    """A step passes only if its loss and every update are within the tolerance."""
    model, batch = model_sweep.make("MLP-Mixer")
    right = model_sweep.plain_step(copy.deepcopy(model), batch)
    assert not model_sweep.difference(right, right, 1e-6)
    assert "loss" in model_sweep.difference(replace(right, loss=right.loss + 1), right, 1e-3)
    assert "loss" in model_sweep.difference(replace(right, loss=float("nan")), right, 1e-3)
    name, update = next(iter(right.updates.items()))
    for other in (update * 1.01, torch.full_like(update, float("nan"))):
        wrong = replace(right, updates=right.updates | {name: other})
        assert name in model_sweep.difference(wrong, right, 1e-3)
    noise = model_sweep.noise_of(model, batch, right)
    assert noise.keys() == right.updates.keys()
    assert 0 < noise[name] < 1e-4 * float(update.abs().max())


def test_the_page_lists_what_fails():
    """`failing` reads back from a page which models do not pass."""
    bad = model_sweep.Outcome(model_sweep.REFUSED, "1 | 2")
    good = model_sweep.Outcome(model_sweep.PASS)
    rows = [
        model_sweep.Row("a", 1, {HOST: good, TILES: bad}),
        model_sweep.Row("b", 1, {HOST: good, TILES: good}),
    ]
    assert model_sweep.failing(model_sweep.page(rows)) == {"a"}
    assert model_sweep.percent(rows, TILES) == 50


@pytest.mark.wide
@pytest.mark.parametrize("shard", range(_N_SHARDS))
def test_every_model_that_passed_still_does(shard, repository):
    """Nothing fails that docs/models.md does not list."""
    names = sorted(model_sweep.all_models())[shard::_N_SHARDS]
    bad = {row.name for row in model_sweep.sweep(names, 1) if model_sweep.failures(row)}
    page = Path(repository, "docs", "models.md").read_text()
    assert bad <= model_sweep.failing(page)

"""A training step over replicas, phase by phase, against Adam on the dense model."""

from dataclasses import replace

import pytest
import torch

from tests.garden.gpt3.test_config import FOLDER
from tremula.base.errors import InvalidOption
from tremula.garden.gpt3 import dense
from tremula.garden.gpt3.config import Parallelism, load_config
from tremula.garden.gpt3.training import Trainer

TOLERANCE = 1e-4


def batches_of(config, n):
    draw = torch.Generator().manual_seed(3)
    model, size = config.model, config.training.global_batch
    for _ in range(n):
        shape = (size, model.sequence + 1)
        tokens = torch.randint(0, model.vocabulary, shape, generator=draw)
        yield tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def worst_error(config, n_steps):
    """The largest relative error of losses and weights after some steps."""
    weights = dense.random_weights(config)
    expected = {name: w.clone() for name, w in weights.items()}
    batches = list(batches_of(config, n_steps))
    trainer = Trainer(config, weights)
    losses = list(trainer.train(batches))
    dense_losses = list(dense.train(expected, batches, config))
    errors = [abs(a - b) / b for a, b in zip(losses, dense_losses, strict=True)]
    found = trainer.weights()
    assert set(found) == set(expected)
    for name, w in expected.items():
        assert not torch.equal(found[name], weights[name]), f"{name} was not trained"
        errors.append(((found[name] - w).abs().max() / w.abs().max()).item())
    return max(errors)


def test_two_steps_equal_the_dense_model():
    """dp 2 · tp 2 · tp 2, clipped gradients, scaled loss: losses and all weights are Adam's."""
    assert worst_error(load_config(FOLDER / "tiny.toml"), 2) <= TOLERANCE


def test_one_dimension_and_plain_updates():
    """The same in one dimension, without clipping, with weight decay, in overlapped transfers."""
    config = load_config(FOLDER / "tiny.toml")
    config = replace(
        config,
        model=replace(config.model, n_layers=1, vocabulary=100),
        parallel=Parallelism(data=1, tensor_1=2),
        training=replace(config.training, global_batch=3, max_grad_norm=0.0, weight_decay=0.1),
        machine=replace(config.machine, io_mode="io_overlapped", attention_serialisation=1),
    )
    assert worst_error(config, 2) <= TOLERANCE


def test_dropout_is_refused():
    """Phases pass no seeds: a configuration with dropout is an error, not trained without it."""
    config = load_config(FOLDER / "175b_pod256.toml")
    with pytest.raises(InvalidOption, match="dropout"):
        Trainer(config, {})


@pytest.mark.wide
def test_ten_steps_equal_the_dense_model():
    """The tiny configuration trains to the same weights."""
    assert worst_error(load_config(FOLDER / "tiny.toml"), 10) <= TOLERANCE

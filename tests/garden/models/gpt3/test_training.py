"""A training step over replicas, phase by phase, against Adam on the dense model."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import popxl
from tests.garden.models.gpt3.test_config import FOLDER
from tremula.frontends.popxl.ops import random
from tremula.garden.models.gpt3 import dense
from tremula.garden.models.gpt3.config import Parallelism, load_config
from tremula.garden.models.gpt3.training import Trainer

TOLERANCE = 1e-4


def batches_of(config, n):
    draw = torch.Generator().manual_seed(3)
    model, size = config.model, config.training.global_batch
    for _ in range(n):
        shape = (size, model.sequence + 1)
        tokens = torch.randint(0, model.vocabulary, shape, generator=draw)
        yield tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def worst_error(config, n_steps, drops=None):
    """The largest relative error of losses and weights after some steps."""
    weights = dense.random_weights(config)
    expected = {name: w.clone() for name, w in weights.items()}
    batches = list(batches_of(config, n_steps))
    trainer = Trainer(config, weights)
    losses = list(trainer.train(batches))
    dense_losses = list(dense.train(expected, batches, config, drops))
    errors = [abs(a - b) / b for a, b in zip(losses, dense_losses, strict=True)]
    result = trainer.weights()
    assert set(result) == set(expected)
    for name, w in expected.items():
        assert not torch.equal(result[name], weights[name]), f"{name} was not trained"
        errors.append(((result[name] - w).abs().max() / w.abs().max()).item())
    return max(errors)


def test_two_steps_equal_the_dense_model():
    """dp 2 · tp 2 · tp 2, clipped gradients, scaled loss: losses and all weights are Adam's."""
    assert worst_error(load_config(FOLDER / "tiny.toml"), 2) <= TOLERANCE


def test_one_dimension_and_plain_updates():
    """Without clipping, with weight decay and overlapped transfers, it trains as the dense GPT."""
    config = load_config(FOLDER / "tiny.toml")
    config = replace(
        config,
        model=replace(config.model, n_layers=1, vocabulary=100),
        parallel=Parallelism(data=1, tensor_1=2),
        training=replace(config.training, global_batch=3, max_grad_norm=0.0, weight_decay=0.1),
        machine=replace(config.machine, io_mode="io_overlapped", attention_serialisation=1),
    )
    assert worst_error(config, 2) <= TOLERANCE


def seeds_after(config, n_steps):
    """The seeds of all groups of replicas in each step: those that differ in tp1 have the same."""
    n_groups = config.parallel.data * config.parallel.tensor_2
    words = popxl.create_seeds(config.training.seed, replicas=n_groups).astype(np.int64)
    seeds = list(torch.from_numpy(words))
    for _ in range(n_steps):
        yield [other_seed(seed, 0) for seed in seeds]
        seeds = [other_seed(seed, 1) for seed in seeds]


def other_seed(seed, number):
    return random.modified_seed.row.compute(seed, torch.tensor(number))


def dense_dropout(config, seeds):
    """What replicas drop, in the dense model: columns by group, rows by micro-batch."""
    n_layers, p = config.model.n_layers, config.model.dropout

    def drop(x, name):
        layer = n_layers if name == "embedding" else int(name.split(".")[1])
        columns = x.chunk(len(seeds), 1)
        return torch.cat(
            [part(c, other_seed(s, layer), name) for c, s in zip(columns, seeds, strict=True)], 1
        )

    def part(x, seed, name):
        result = []
        for rows in x.chunk(config.accumulation):
            own, seed = other_seed(seed, 0), other_seed(seed, 1)
            if name != "embedding":
                own = other_seed(own, 1 if name.endswith("feed_forward") else 0)
            result.append(random.dropout.row.compute(rows, own, p))
        return torch.cat(result)

    return drop


def test_dropout_equals_that_of_the_dense_model():
    """tp 2 · tp 2: equal masks along tp1, others along tp2, the same ones in both directions."""
    config = load_config(FOLDER / "tiny.toml")
    config = replace(
        config,
        model=replace(config.model, dropout=0.25),
        parallel=Parallelism(data=1, tensor_1=2, tensor_2=2),
        training=replace(config.training, global_batch=2, seed=5),
    )
    drops = [dense_dropout(config, seeds) for seeds in seeds_after(config, 2)]
    assert worst_error(config, 2, drops) <= TOLERANCE


@pytest.mark.wide
def test_ten_steps_equal_the_dense_model():
    """The tiny configuration trains to the same weights."""
    assert worst_error(load_config(FOLDER / "tiny.toml"), 10) <= TOLERANCE

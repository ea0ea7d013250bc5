"""Layers in one and two dimensions of tensor parallelism against dense PyTorch, both directions."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import popxl
import popxl_addons as addons
from popxl import ops
from tests.garden.models.gpt3.test_config import FOLDER
from tremula.garden.models.gpt3 import dense
from tremula.garden.models.gpt3.config import Parallelism, load_config
from tremula.garden.models.gpt3.ends import LanguageModelHead, ShardedEmbedding
from tremula.garden.models.gpt3.layers import (
    Build,
    FeedForward,
    ShardedAttention,
    ShardedDecoderLayer,
)
from tremula.garden.models.gpt3.layout import embedding_weights, head_weights, layer_weights
from tremula.garden.models.gpt3.packing import dense_of, parts_of
from tremula.garden.models.gpt3.replicas import Replicas

# dp, tp1, tp2: dense, one dimension, two of them, and more of the one than of the other.
SHAPES = [(1, 1, 1), (1, 4, 1), (1, 2, 2), (2, 2, 2), (1, 4, 2), (1, 2, 4)]
TOLERANCE = 1e-5


def config_for(shape):
    config = load_config(FOLDER / "tiny.toml")
    data, tensor_1, tensor_2 = shape
    parallel = Parallelism(data=data, tensor_1=tensor_1, tensor_2=tensor_2)
    return replace(config, parallel=parallel)


def close(result, expected):
    result, expected = np.asarray(result), np.asarray(expected)
    return np.abs(result - expected).max() <= TOLERANCE * max(1, np.abs(expected).max())


def run_both_ways(config, module, weights, inputs, grad):
    """Outputs and gradients of a module on each replica; inputs are given for each of them."""
    ir = popxl.Ir(replication=config.parallel.n_replicas)
    layout = {w.name: w for w in layer_weights(config) + embedding_weights(config)}
    layout |= {w.name: w for w in head_weights(config)}

    def data(weight):
        return list(parts_of(weights[weight.name].numpy(), layout[weight.name], config))

    each = ir.replica_grouping(group_size=1)

    def own(rows):
        return popxl.variable(rows if len(rows) > 1 else rows[0], replica_grouping=each)

    with ir.main_graph, popxl.in_sequence(True):
        build = Build(config, Replicas(ir, config.parallel), data)
        given = [own(rows) for rows in inputs]
        made = module(build)
        factories, graph = made.create_graph(*given)
        floats = [t for t in graph.graph.inputs if t.dtype.is_float]
        gradient = addons.autodiff(graph, grads_required=floats)
        args = factories.init()
        call = graph.bind(args).call_with_info(*given)
        seed = own(grad)
        result = gradient.grad_graph_info.inputs_dict(call)
        results = [call.outputs[0], *gradient.call(seed, args=result)]
        streams = []
        for i, t in enumerate(results):
            streams.append(popxl.d2h_stream(t.shape, t.dtype, f"result_{i}"))
            ops.host_store(streams[-1], t)
    with popxl.Session(ir, "cpu") as session:
        outputs = session.run()
    n = config.parallel.n_replicas
    values = [outputs[s].reshape(n, *s.shape) for s in streams]
    names = {t: name for name, t in graph.args.to_dict().items()}
    by_name = {names.get(t, t.name): v for t, v in zip(floats, values[1:], strict=True)}
    return values[0], by_name, layout


def columns(x, config):
    """[replicas, T, h / tp2] of rows [T, h]."""
    parallel = config.parallel
    parts = np.split(x, parallel.tensor_2, axis=1)
    return np.stack([parts[r % parallel.tensor_2] for r in range(parallel.n_replicas)])


def one_of_each_group(values, weight, config):
    ir = popxl.Ir(replication=config.parallel.n_replicas)
    group = Replicas(ir, config.parallel).holding(weight.split)
    first = [group.assignment.index(g) for g in range(group.num_groups)]
    for r, g in enumerate(group.assignment):  # the same on all that hold the same part
        np.testing.assert_allclose(values[r], values[first[g]], rtol=1e-5, atol=1e-6)
    return values[first]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("module", "name", "function"),
    [
        (ShardedAttention, "attention", dense.attention),
        (FeedForward, "feed_forward", dense.feed_forward),
        (ShardedDecoderLayer, "", None),
    ],
)
def test_layers_equal_dense_ones(shape, module, name, function):
    """Rows, their gradient and those of all weights are the dense layer's, biases included."""
    config = config_for(shape)
    weights = dense.of_layer(dense.random_weights(config, scale=0.2), 0)
    draw = torch.Generator().manual_seed(1)
    x, grad = (torch.randn(config.n_rows, 64, generator=draw) for _ in range(2))

    def whole(x, w, config):
        return dense.feed_forward(dense.attention(x, w, config), w, config)

    leaves = {k: w.clone().requires_grad_() for k, w in weights.items()}
    x.requires_grad_()
    expected = (function or whole)(x, leaves, config)
    expected.backward(grad)
    rows = columns(x.detach().numpy(), config)
    out, grads, layout = run_both_ways(
        config, module, weights, [rows], columns(grad.numpy(), config)
    )
    assert close(out, columns(expected.detach().numpy(), config))
    assert close(grads.pop("x"), columns(x.grad.numpy(), config))
    for key, value in grads.items():
        full = f"{name}.{key}" if name else key
        result = one_of_each_group(value, layout[full], config)
        assert close(dense_of(result, layout[full], config), leaves[full].grad), full


@pytest.mark.parametrize("shape", SHAPES)
def test_embeddings_equal_dense_ones(shape):
    """Rows of words, wherever their row of the table is, and gradients of both tables."""
    config = config_for(shape)
    weights = dense.random_weights(config)
    words = torch.arange(config.n_rows) * 17 % config.model.vocabulary
    leaves = {k: w.clone().requires_grad_() for k, w in weights.items()}
    grad = torch.randn(config.n_rows, 64, generator=torch.Generator().manual_seed(1))
    expected = dense.embedding(words, leaves, config)
    expected.backward(grad)
    n = config.parallel.n_replicas
    given = np.repeat(words.numpy().astype(np.int32)[None], n, axis=0)
    out, grads, layout = run_both_ways(
        config, ShardedEmbedding, weights, [given], columns(grad.numpy(), config)
    )
    assert close(out, columns(expected.detach().numpy(), config))
    for key, value in grads.items():
        weight = layout[f"embeddings.{key}"]
        result = one_of_each_group(value, weight, config)
        assert close(dense_of(result, weight, config), leaves[weight.name].grad), key


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("vocabulary", [128, 100])
def test_the_loss_equals_the_dense_one(shape, vocabulary):
    """Loss and gradients of rows, table and norm, also if the table has rows that are no words."""
    config = config_for(shape)
    config = replace(config, model=replace(config.model, vocabulary=vocabulary))
    weights = dense.random_weights(config, scale=0.3)
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(config.n_rows, 64, generator=draw).requires_grad_()
    labels = torch.arange(config.n_rows) * 13 % vocabulary
    leaves = {k: w.clone().requires_grad_() for k, w in weights.items()}
    expected = dense.head_loss(x, labels, leaves, config)
    expected.backward()
    n = config.parallel.n_replicas
    word = embedding_weights(config)[0]
    group = Replicas(popxl.Ir(replication=n), config.parallel).holding("both")
    table = parts_of(weights[word.name].numpy(), word, config)[group.assignment]
    given = np.repeat(labels.numpy().astype(np.int32)[None], n, axis=0)
    out, grads, layout = run_both_ways(
        config, LanguageModelHead, weights, [columns(x.detach().numpy(), config), table, given],
        np.ones(n, np.float32),
    )  # fmt: skip
    assert close(out, np.full(n, expected.item()))
    assert close(grads.pop("x"), columns(x.grad.numpy(), config))
    grads.pop("padding", None)
    result = one_of_each_group(grads.pop("word"), word, config)
    assert close(dense_of(result, word, config), leaves[word.name].grad)
    for key, value in grads.items():
        weight = layout[f"head.{key}"]
        assert close(
            dense_of(one_of_each_group(value, weight, config), weight, config),
            leaves[weight.name].grad,
        )

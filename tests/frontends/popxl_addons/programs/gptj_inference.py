"""GPT-J as it is served: weights in remote memory, loaded layer by layer, over replicas."""

import math

import numpy as np
import torch

import popdist
import popxl
import popxl_addons as addons
from popxl import ops
from popxl.utils import to_numpy
from popxl_addons.array_munging import pad_axis, repeat, shard, tensor_parallel_input
from popxl_addons.layers import Embedding, LayerNorm, Linear
from popxl_addons.named_tensors import NamedTensors
from popxl_addons.ops.replicated_all_reduce_TP import replicated_all_reduce
from popxl_addons.ops.rotary_pos_embed import rotary_pos_embed, trig_table_constants, trig_tables
from popxl_addons.patterns import apply_pre_alias_patterns
from popxl_addons.remote import load_remote_graph, named_variable_buffers
from popxl_addons.task_session import TaskSession
from popxl_addons.utils import WeightsDict, timer
from tests.frontends.popxl_addons.programs.parts import (
    Attention,
    Config,
    FeedForward,
    dense_attention,
    dense_weights,
    qkv_shards,
)

CONFIG = Config(tp=2, heads=4, hidden=16, rotary=2, vocab=40)


class Embeddings(addons.Module):
    """Words, with the table's rows over replicas."""

    def __init__(self, config: Config):
        super().__init__()
        self.group = config.weight_group()
        self.word = Embedding(
            popxl.float32, config.vocab, config.hidden, replica_grouping=self.group
        )

    def build(self, words: popxl.Tensor) -> popxl.Tensor:
        return replicated_all_reduce(self.word(words), group=self.group.transpose())


class Decoder(addons.Module):
    """Attention and feed-forward beside each other."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.ln = LayerNorm()
        self.attention = Attention(config, position=self.turned)
        self.feed_forward = FeedForward(config)

    def turned(self, t: popxl.Tensor) -> popxl.Tensor:
        sin, cos = trig_table_constants(self.config.sequence, self.config.rotary)
        return rotary_pos_embed(t, sin, cos, self.config.rotary)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        z = self.ln(x)
        return x + self.attention(z) + self.feed_forward(z)


class Head(addons.Module):
    """Scores of this replica's words."""

    def __init__(self, config: Config):
        super().__init__()
        group = config.weight_group()
        self.ln_f = LayerNorm()
        n = Embedding.get_vocab_shard_size(config.vocab, config.tp)
        self.head = Linear(n, bias=False, replica_grouping=group)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        return self.head(self.ln_f(x))


def inference(config: Config) -> tuple[TaskSession, NamedTensors]:
    """A session that gives the scores of each position."""
    assert not popdist.isPopdistEnvSet()
    ir = popxl.Ir(replication=config.tp)
    options = ir._pb_ir.getSessionOptions()
    options.partialsTypeMatMuls = "half"
    options.engineOptions["target.syncReplicasIndependently"] = "true"
    with timer("PopXL IR construction"), ir.main_graph:
        n = Embedding.get_vocab_shard_size(config.vocab, config.tp)
        inputs = addons.InputStreams(words=((config.rows,), popxl.int32))
        outputs = addons.OutputStreams(scores=((config.rows, n), popxl.float32))
        first, embeddings = Embeddings(config).create_graph(inputs.words.spec)
        facts, layer = Decoder(config).create_graph(*embeddings.graph.outputs)
        last, head = Head(config).create_graph(layer.graph.outputs[0])
        addons.set_available_memory_proportion_by_ipu(ir, (0.4,))
        buffers = named_variable_buffers(first, shard_over_dict=False)
        layers = named_variable_buffers(facts, entries=config.layers, shard_over_dict=False)
        ends = named_variable_buffers(last, shard_over_dict=False)
        variables = NamedTensors()
        transformer = NamedTensors()
        transformer.insert("embeddings", first.init_remote(buffers, 0, "embeddings", empty=True))
        decoder = {n: facts.init_remote(layers, n, f"decoder.{n}", empty=True)
                   for n in range(config.layers)}  # fmt: skip
        transformer.insert("decoder", NamedTensors.from_dict(decoder))
        variables.insert("transformer", transformer)
        variables.insert("head", last.init_remote(ends, 0, "head", empty=True))
        with popxl.in_sequence():
            words = ops.host_load(inputs.words)
            load, names = load_remote_graph(buffers)
            (x,) = embeddings.bind(NamedTensors.pack(names, load.call(0))).call(words)

            def one_layer(x, n):
                load, names = load_remote_graph(layers)
                (x,) = layer.bind(NamedTensors.pack(names, load.call(n))).call(x)
                return x, n + 1

            i = popxl.constant(0, name="layer_index")
            x, _ = ops.repeat(ir.create_graph(one_layer, x, i), config.layers, x, i)
            load, names = load_remote_graph(ends)
            (scores,) = head.bind(NamedTensors.pack(names, load.call(0))).call(x)
            ops.host_store(outputs.scores, scores.reshape_(outputs.scores.shape))
    apply_pre_alias_patterns(ir, level="default")
    ir.num_host_transfers = 1
    state = NamedTensors(fwd=variables)
    session = TaskSession(inputs=inputs, outputs=outputs, state=state, ir=ir, device_desc="ipu_hw")
    return session, variables


def mapping(config: Config, variables: NamedTensors, weights: dict) -> WeightsDict:
    """Values of the variables, as replicas share them."""
    arrays = {name: to_numpy(w, popxl.float32) for name, w in weights.items()}
    tp, n = config.tp, Embedding.get_vocab_shard_size(config.vocab, config.tp)
    ones, zeros = np.ones(config.hidden, np.float32), np.zeros(config.hidden, np.float32)
    word = shard(pad_axis(arrays["word"], tp * n, 0), tp, 0)
    values = WeightsDict({variables.transformer.embeddings.word.weight: word})
    for i in range(config.layers):
        block = variables.transformer.decoder[i]
        values.update({
            block.ln.weight: ones,
            block.ln.bias: zeros,
            block.attention.qkv.weight: qkv_shards(arrays[f"qkv{i}"], tp),
            block.attention.output.weight: shard(arrays[f"out{i}"], tp, 0),
            block.feed_forward.intermediate.weight: shard(arrays[f"up{i}"], tp, 1),
            block.feed_forward.intermediate.bias: repeat(
                np.zeros(4 * config.hidden // tp, np.float32), tp
            ),
            block.feed_forward.output.weight: shard(arrays[f"down{i}"], tp, 0),
        })  # fmt: skip
    head = variables.head
    values.update({
        head.ln_f.weight: ones,
        head.ln_f.bias: zeros,
        head.head.weight: shard(pad_axis(arrays["head"], tp * n, 1), tp, 1),
    })  # fmt: skip
    return values


def dense(config: Config, weights: dict, words: torch.Tensor) -> torch.Tensor:
    """Scores of one sample in PyTorch."""
    sin, cos = (torch.from_numpy(t)[:, None] for t in trig_tables(config.sequence, config.rotary))

    def turned(t):
        even, odd = t[..., 0 : config.rotary : 2], t[..., 1 : config.rotary : 2]
        pairs = torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)
        return torch.cat([pairs, t[..., config.rotary :]], -1)

    norm = torch.nn.functional.layer_norm
    x = weights["word"][words]
    for i in range(config.layers):
        z = norm(x, (config.hidden,))
        mixed = dense_attention(z, weights[f"qkv{i}"], weights[f"out{i}"], config, True, turned)
        up = torch.nn.functional.gelu(z @ weights[f"up{i}"], approximate="tanh")
        x = x + mixed + up @ weights[f"down{i}"]
    return norm(x, (config.hidden,)) @ weights["head"]


def run() -> None:
    """Scores of the program are those of the dense model."""
    config, h = CONFIG, CONFIG.hidden
    per_layer = {"qkv": (h, 3 * h), "out": (h, h), "up": (h, 4 * h), "down": (4 * h, h)}
    shapes = {f"{name}{i}": s for i in range(config.layers) for name, s in per_layer.items()}
    weights = dense_weights(0, word=(config.vocab, h), head=(h, config.vocab), **shapes)
    session, variables = inference(config)
    words = np.random.default_rng(0).integers(0, config.vocab, (1, config.rows)).astype(np.int32)
    offsets = Embedding.get_offsets(config.vocab, config.tp)
    rows = tensor_parallel_input(words, config.tp, config.tp, lambda x, i: x - int(offsets[i]))
    assert rows.shape == session._full_input_shape(session.inputs.words.shape)
    with session:
        session.write_variables_data(mapping(config, variables, weights))
        result = session.run({session.inputs.words: rows})[session.outputs.scores]
    scores = np.concatenate(list(result), 1)[:, : config.vocab]
    expected = dense(config, weights, torch.from_numpy(words[0]).long()).numpy()
    np.testing.assert_allclose(scores, expected, rtol=2e-3, atol=2e-3)
    assert math.isfinite(float(scores.sum()))


if __name__ == "__main__":
    run()

"""Llama as it is served: RMS norms, rotary embeddings, gated layers, weights of four bits."""

from functools import partial

import numpy as np
import torch

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons import NamedTensors, host_load, host_store
from popxl_addons.layers import Embedding, Linear
from popxl_addons.layers.linear_gq import LinearGQ, group_quantize_compress_numpy
from popxl_addons.ops.group_quantize_decompress import group_quantize_decompress_numpy
from popxl_addons.ops.rotary_pos_embed import rotary_pos_embed, trig_table_constants, trig_tables
from popxl_addons.testing_utils import ops_of_type
from popxl_addons.transforms.use_fc_pass import disable_fc_pass
from tests.frontends.popxl_addons.programs.parts import (
    Config,
    attend,
    dense_attention,
    dense_weights,
)

CONFIG = Config(tp=1, hidden=16, heads=2, sequence=4, layers=2, vocab=16)
GROUP, INNER = 8, 24


class RMSNorm(addons.Module):
    """Rows divided by the root of their mean square."""

    def __init__(self, eps: float = 1e-6):
        super().__init__()
        self.eps = eps

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        weight = self.add_variable_input("weight", partial(np.ones, x.shape[-1]), x.dtype)
        wide = ops.cast(x, popxl.float32)
        mean = ops.mean(wide * wide, -1, keepdims=True)
        return weight * ops.cast(wide * (mean + self.eps) ** -0.5, x.dtype)


class Block(addons.Module):
    """A decoder layer: attention, then a gated feed-forward layer."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        linear = partial(LinearGQ, bias=False, group_size=GROUP)
        self.attention_norm, self.ffn_norm = RMSNorm(), RMSNorm()
        self.qkv, self.out = linear(3 * config.hidden), linear(config.hidden)
        self.gate, self.up, self.down = linear(INNER), linear(INNER), linear(config.hidden)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        c = self.config
        sin, cos = trig_table_constants(c.sequence, c.hidden // c.heads)
        parts = ops.split(self.qkv(self.attention_norm(x)), 3, axis=-1)
        q, k, v = (t.reshape((c.batch, c.sequence, c.heads, -1)) for t in parts)
        q, k = rotary_pos_embed(q, sin, cos), rotary_pos_embed(k, sin, cos)
        x = x + self.out(attend(q, k, v, causal=True).reshape((c.rows, c.hidden)))
        z = self.ffn_norm(x)
        gated = self.gate(z)
        return x + self.down(ops.swish(gated) * self.up(z))


class Llama(addons.Module):
    """Layers that are one graph, called with the weights of each."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.embedding = Embedding(popxl.float32, config.vocab, config.hidden)
        self.norm = RMSNorm()
        self.head = Linear(config.vocab, bias=False)

    def build(self, words: popxl.Tensor) -> popxl.Tensor:
        x = self.embedding(words)
        facts, graph = Block(self.config).create_graph(x)
        for i in range(self.config.layers):
            (x,) = graph.bind(self.add_variable_inputs(i, facts)).call(x)
        return self.head(self.norm(x))


def compressed(variables: NamedTensors, weight: np.ndarray) -> tuple[dict, torch.Tensor]:
    """Values of a layer of four bits, and the weight that they represent."""
    words, *floats = group_quantize_compress_numpy(weight, GROUP, -1)
    scale, bias = (t.astype(np.float32) for t in floats)
    values = {
        variables.weight_compressed: words,
        variables.weight_decompression_scale: scale,
        variables.weight_decompression_bias: bias,
    }
    return values, torch.from_numpy(group_quantize_decompress_numpy(words, scale, bias, -1))


def dense(config: Config, w: dict, words: torch.Tensor) -> torch.Tensor:
    """Scores of one sample in PyTorch."""
    tables = trig_tables(config.sequence, config.hidden // config.heads)
    sin, cos = (torch.from_numpy(t)[:, None] for t in tables)

    def turned(t):
        even, odd = t[..., 0::2], t[..., 1::2]
        return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)

    def norm(x):
        return torch.nn.functional.rms_norm(x, (config.hidden,), eps=1e-6)

    x = w["word"][words]
    for i in range(config.layers):
        x = x + dense_attention(norm(x), w[f"{i}.qkv"], w[f"{i}.out"], config, True, turned)
        z = norm(x)
        gated = torch.nn.functional.silu(z @ w[f"{i}.gate"]) * (z @ w[f"{i}.up"])
        x = x + gated @ w[f"{i}.down"]
    return norm(x) @ w["head"]


def run() -> None:
    """Scores are those of the dense model with the weights that four bits represent."""
    config, h = CONFIG, CONFIG.hidden
    words = np.random.default_rng(0).integers(0, config.vocab, config.rows).astype(np.int32)
    ir = popxl.Ir()
    with ir.main_graph:
        _, stream, x = host_load(words, popxl.int32, "words")
        facts, graph = Llama(config).create_graph(x)
        variables = facts.init(empty=True)
        (scores,) = graph.bind(variables).call(x)
        result = host_store(scores)
    disable_fc_pass(ir)
    import popart._internal.ir as _ir  # as tests of applications do

    called = graph.graph._pb_graph.getOps()
    assert ops_of_type(called, _ir.op.CallOp) == config.layers
    shapes = {"qkv": (h, 3 * h), "out": (h, h), "gate": (h, INNER), "up": (h, INNER),
              "down": (INNER, h)}  # fmt: skip
    named = {f"{i}.{name}": s for i in range(config.layers) for name, s in shapes.items()}
    weights = dense_weights(2, word=(config.vocab, h), head=(h, config.vocab), **named)
    values = {variables.embedding.weight: weights["word"].numpy(),
              variables.head.weight: weights["head"].numpy(),
              variables.norm.weight: np.ones(h, np.float32)}  # fmt: skip
    for i in range(config.layers):
        block = variables[i]
        for norm in (block.attention_norm, block.ffn_norm):
            values[norm.weight] = np.ones(h, np.float32)
        for name in shapes:
            more, weights[f"{i}.{name}"] = compressed(block[name], weights[f"{i}.{name}"].numpy())
            values |= more
    with popxl.Session(ir, "ipu_hw") as session:
        session.write_variables_data(values)
        got = session.run({stream: words})[result]
    expected = dense(config, weights, torch.from_numpy(words).long())
    np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-3)


if __name__ == "__main__":
    run()

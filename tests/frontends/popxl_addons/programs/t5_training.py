"""T5: an encoder and a decoder with relative positions, trained by gradients of called modules."""

import numpy as np
import torch

import popxl
import popxl_addons as addons
from popxl import ops
from popxl.utils import to_numpy
from popxl_addons import GraphCache, NamedTensors
from popxl_addons.dot_tree import DotTree
from popxl_addons.layers import Linear
from popxl_addons.named_tensors import NamedTensorData
from popxl_addons.optimizers.adam import AdamOptimizerStep
from popxl_addons.transforms.repeat_graph import repeat_graph
from popxl_addons.utils import OrderedDict
from tests.frontends.popxl_addons.programs.llama_inference import RMSNorm
from tests.frontends.popxl_addons.programs.parts import Config, dense_weights

CONFIG = Config(tp=1, hidden=8, heads=2, sequence=4, layers=1, vocab=12)
LR, N_STEPS = 0.02, 3


def buckets(n: int) -> np.ndarray:
    """The relative position of each pair, as a row of the table of biases."""
    return (np.arange(n)[:, None] - np.arange(n)[None] + n - 1).astype(np.int32)


class Attention(addons.Module):
    """Attention of rows to rows, of which scores get a bias for their distance."""

    def __init__(self, config: Config, causal: bool = False, relative: bool = True):
        super().__init__()
        self.config, self.causal, self.relative = config, causal, relative
        self.q, self.k, self.v, self.o = (Linear(config.hidden, bias=False) for _ in range(4))

    def build(self, x: popxl.Tensor, memory: popxl.Tensor) -> popxl.Tensor:
        c = self.config
        heads = [
            self.split(part(t)) for part, t in ((self.q, x), (self.k, memory), (self.v, memory))
        ]
        q, k, v = heads
        scores = q @ k.transpose((0, 2, 1))
        if self.relative:
            table = self.add_variable_input(
                "relative", lambda: np.zeros((2 * c.sequence - 1, c.heads), np.float32)
            )
            bias = ops.gather(table, popxl.constant(buckets(c.sequence).ravel()), axis=0)
            scores = scores + bias.reshape((c.sequence, c.sequence, c.heads)).transpose((2, 0, 1))
        if self.causal:
            mask = 1e4 * (np.tril(np.ones((c.sequence, c.sequence))) - 1)
            scores = scores + popxl.constant(mask, x.dtype)
        mixed = ops.softmax(scores, axis=-1) @ v
        return self.o(mixed.transpose((1, 0, 2)).reshape(x.shape))

    def split(self, t: popxl.Tensor) -> popxl.Tensor:
        return t.reshape((self.config.sequence, self.config.heads, -1)).transpose((1, 0, 2))


class FeedForward(addons.Module):
    """A gated layer whose gradient is its own."""

    def __init__(self, config: Config):
        super().__init__()
        self.n = 2 * config.hidden

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        n = x.shape[-1]
        w = self.add_variable_input("w", lambda: np.zeros((n, self.n), np.float32), x.dtype)
        o = self.add_variable_input("o", lambda: np.zeros((self.n, n), np.float32), x.dtype)
        hidden = ops.relu(x @ w)
        self.aux["x"], self.aux["w"], self.aux["o"], self.aux["hidden"] = x, w, o, hidden
        return hidden @ o

    def build_grad(self, dy: popxl.Tensor) -> popxl.Tensor:
        hidden = self.aux["hidden"]
        inner = dy @ self.aux["o"].T
        inner = ops.where(ops.greater(hidden, popxl.constant(0.0, hidden.dtype)), inner,
                          popxl.constant(0.0, inner.dtype))  # fmt: skip
        self.var_grad["o"] = hidden.T @ dy
        self.var_grad["w"] = self.aux["x"].T @ inner
        return inner @ self.aux["w"].T


class T5(addons.Module):
    """The loss of a sample: encoder, decoder with attention to it, scores."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.encoder, self.decoder = Attention(config), Attention(config, causal=True)
        self.cross = Attention(config, relative=False)
        self.norm = RMSNorm()
        self.head = Linear(config.vocab, bias=False)

    def build(self, x: popxl.Tensor, y: popxl.Tensor) -> popxl.Tensor:
        x = x + self.encoder(x, x)
        (z,) = self.call_module(FeedForward(self.config), "encoder_ff")(x)
        memory = x + z
        y = y + self.decoder(y, y)
        y = y + self.cross(y, memory)
        (z,) = self.call_module(FeedForward(self.config), "decoder_ff")(y)
        return self.head(self.norm(y + z))


def training(config: Config):
    """An Ir that trains for N_STEPS in one run, its variables, streams."""
    ir = popxl.Ir()
    ir.num_host_transfers = N_STEPS
    shape = (config.sequence, config.hidden)
    with ir.main_graph, popxl.in_sequence():
        inputs = addons.InputStreams(
            x=(shape, popxl.float32), y=(shape, popxl.float32),
            labels=((config.sequence,), popxl.int32),
        )  # fmt: skip
        x, y, labels = (ops.host_load(stream) for stream in inputs)
        facts, graph = T5(config).create_graph(x, y)
        gradient = graph.autodiff(grads_required=graph.args.tensors)
        variables = facts.init("t5")
        call = graph.bind(variables).call_with_info(x, y)
        loss, dy = addons.cross_entropy_with_grad(call.outputs[0], labels)
        results = gradient.call(dy, args=gradient.grad_graph_info.inputs_dict(call))
        grads = dict(zip(graph.args.tensors, results, strict=True))
        cache = GraphCache()
        assert cache.create_graph(ops.relu, x) is cache.create_graph(ops.relu, y)
        state = OrderedDict()
        for name, inner in graph.args.named_tensors.items():
            variable = variables.get(name)
            made, step = AdamOptimizerStep().create_graph(
                variable, grads[inner], lr=LR, eps=1e-6, weight_decay=0.0,
                first_order_dtype=popxl.float32,
            )  # fmt: skip
            state[name] = made.init(f"optim.{name}")
            step.bind(state[name]).call(variable, grads[inner])
        output = addons.host_store(loss)
    repeat_graph(ir.main_graph, N_STEPS)
    return ir, variables, inputs, output, DotTree.from_dict(state)


# -- against PyTorch -------------------------------------------------------------------------------


def dense(config: Config, w: dict, x, y):
    """Scores of one sample."""

    def attention(name, x, memory, causal=False):
        def heads(part, t):
            return (t @ w[f"{name}.{part}"]).view(config.sequence, config.heads, -1).transpose(0, 1)

        scores = heads("q", x) @ heads("k", memory).transpose(1, 2)
        if f"{name}.relative" in w:
            scores = scores + w[f"{name}.relative"][buckets(config.sequence)].permute(2, 0, 1)
        if causal:
            scores = scores + 1e4 * (torch.ones(config.sequence, config.sequence).tril() - 1)
        mixed = scores.softmax(-1) @ heads("v", memory)
        return mixed.transpose(0, 1).reshape(x.shape) @ w[f"{name}.o"]

    def feed_forward(name, x):
        return (x @ w[f"{name}.w"]).relu() @ w[f"{name}.o"]

    x = x + attention("encoder", x, x)
    memory = x + feed_forward("encoder_ff", x)
    y = y + attention("decoder", y, y, causal=True)
    y = y + attention("cross", y, memory)
    y = y + feed_forward("decoder_ff", y)
    return torch.nn.functional.rms_norm(y, (config.hidden,), w["norm"], eps=1e-6) @ w["head"]


def weights_of(config: Config) -> dict[str, torch.Tensor]:
    h, n = config.hidden, 2 * config.sequence - 1
    shapes = {f"{a}.{p}": (h, h) for a in ("encoder", "decoder", "cross") for p in "qkvo"}
    shapes |= {"encoder.relative": (n, config.heads), "decoder.relative": (n, config.heads)}
    for name in ("encoder_ff", "decoder_ff"):
        shapes |= {f"{name}.w": (h, 2 * h), f"{name}.o": (2 * h, h)}
    return dense_weights(3, norm=(h,), head=(h, config.vocab), **shapes)


def run() -> None:
    """Losses of some steps, and the weights behind them, are those of Adam on the dense model."""
    config, draw = CONFIG, np.random.default_rng(0)
    shape = (N_STEPS, config.sequence, config.hidden)
    x, y = (draw.normal(size=shape).astype(np.float32) for _ in range(2))
    labels = draw.integers(0, config.vocab, shape[:2]).astype(np.int32)
    weights = {name: t.requires_grad_() for name, t in weights_of(config).items()}
    ir, variables, inputs, output, _ = training(config)

    def values() -> dict:
        tree = NamedTensorData.from_dict(
            {name: to_numpy(t.detach(), popxl.float32) for name, t in weights.items()}
        )
        return {
            variables.get(name): tree.get(name.removesuffix(".weight"))
            for name in NamedTensors.keys_flat(variables)
        }

    adam = torch.optim.Adam(weights.values(), lr=LR, eps=1e-6)
    expected = []
    with popxl.Session(ir, "ipu_hw") as session:
        session.write_variables_data(values())
        losses = session.run({inputs.x: x, inputs.y: y, inputs.labels: labels})[output]
        for sample in zip(x, y, labels, strict=True):
            a, b, target = (torch.from_numpy(t) for t in sample)
            loss = torch.nn.functional.cross_entropy(dense(config, weights, a, b), target.long())
            adam.zero_grad()
            loss.backward()
            adam.step()
            expected.append(loss.item())
        np.testing.assert_allclose(losses.ravel(), expected, rtol=1e-3)
        for variable, array in values().items():
            got = session.get_tensor_data(variable)
            np.testing.assert_allclose(got, array, rtol=1e-2, atol=3e-3, err_msg=variable.name)


if __name__ == "__main__":
    run()

"""BERT for questions and answers, trained as a pipeline over two IPUs."""

import numpy as np
import torch

import popxl
import popxl_addons as addons
from popxl import ops
from popxl.utils import to_numpy
from popxl_addons import Module, NamedTensors, TaskSession
from popxl_addons.layers import Embedding, LayerNorm, Linear
from popxl_addons.optimizers.adam import AdamOptimizerStep
from popxl_addons.patterns import apply_pre_alias_patterns
from popxl_addons.transforms.autodiff import autodiff_with_accumulation
from popxl_addons.utils import WeightsDict, timer
from tests.frontends.popxl_addons.programs.parts import Attention, Config, FeedForward

CONFIG = Config(tp=1, hidden=8, heads=2, sequence=4, layers=2, vocab=32)
STEPS, LR = 6, 0.05


class Embeddings(addons.Module):
    """Words, positions and kinds of tokens."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.word = Embedding(popxl.float32, config.vocab, config.hidden)
        self.position = Embedding(popxl.float32, 16, config.hidden)
        self.token_type = Embedding(popxl.float32, 16, config.hidden)
        self.norm = LayerNorm()

    def build(self, words: popxl.Tensor, types: popxl.Tensor) -> popxl.Tensor:
        numbers = np.tile(np.arange(self.config.sequence), self.config.batch)
        positions = popxl.constant(numbers, popxl.int32, "positions")
        x = self.word(words) + self.position(positions) + self.token_type(types)
        return self.norm(x)


class BertLayer(addons.Module):
    """Attention and feed-forward, each with a norm behind it."""

    def __init__(self, config: Config):
        super().__init__()
        self.attention, self.norm_1 = Attention(config, causal=False), LayerNorm()
        self.feed_forward, self.norm_2 = FeedForward(config), LayerNorm()

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        x = self.norm_1(x + self.attention(x))
        return self.norm_2(x + self.feed_forward(x))


class FirstStage(addons.Module):
    """Embeddings and half of the layers."""

    def __init__(self, config: Config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.layers = Module.from_list([BertLayer(config) for _ in range(config.layers // 2)])

    def build(self, words: popxl.Tensor, types: popxl.Tensor) -> popxl.Tensor:
        x = self.embeddings(words, types)
        for layer in self.layers:
            x = layer(x)
        return x


class LastStage(addons.Module):
    """The other layers, and scores of the first and last token of the answer."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        half = config.layers - config.layers // 2
        self.layers = Module.from_list([BertLayer(config) for _ in range(half)])
        self.squad = Linear(2)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        for i in range(len(self.layers._sub_modules)):
            x = self.layers[i](x)
        scores = self.squad(x).reshape((self.config.batch, self.config.sequence, 2))
        return scores.transpose((2, 0, 1)).reshape((2 * self.config.batch, self.config.sequence))


def training(config: Config) -> TaskSession:
    """A session whose run is one step on STEPS micro-batches."""
    ir = popxl.Ir()
    ir.num_host_transfers = STEPS
    with timer("PopXL IR construction"), ir.main_graph, popxl.in_sequence():
        shape = (config.rows,)
        inputs = addons.InputStreams(
            words=(shape, popxl.int32), types=(shape, popxl.int32),
            labels=((2 * config.batch,), popxl.int32),
        )  # fmt: skip
        outputs = addons.OutputStreams(loss=((), popxl.float32))
        rows = popxl.TensorSpec((config.rows, config.hidden), popxl.float32)
        with popxl.ipu(0):
            facts_0, fwd_0 = FirstStage(config).create_graph(inputs.words.spec, inputs.types.spec)
            sums_0, bwd_0 = autodiff_with_accumulation(fwd_0, fwd_0.args.tensors)
            vars_0, means_0 = facts_0.init("first"), sums_0.init("first.bwd")
        with popxl.ipu(1):
            facts_1, fwd_1 = LastStage(config).create_graph(rows)
            sums_1, bwd_1 = autodiff_with_accumulation(
                fwd_1, fwd_1.args.tensors, grads_required=fwd_1.graph.inputs[:1]
            )
            vars_1, means_1 = facts_1.init("last"), sums_1.init("last.bwd")
        with addons.pipelined_execution(STEPS) as pipeline:
            with pipeline.stage(0), popxl.ipu(0):
                words, types = ops.host_load(inputs.words), ops.host_load(inputs.types)
                call = fwd_0.bind(vars_0).call_with_info(words, types)
                x = call.outputs[0].copy_to_ipu(1)
            with pipeline.stage(1), popxl.ipu(1):
                labels = ops.host_load(inputs.labels)
                last = fwd_1.bind(vars_1).call_with_info(x)
                loss, dy = addons.ops.cross_entropy_with_grad(last.outputs[0], labels)
                ops.host_store(outputs.loss, loss)
                info = bwd_1.grad_graph_info
                (dx,) = bwd_1.bind(means_1).call(dy, args=info.inputs_dict(last))
                dx = dx.copy_to_ipu(0)
            with pipeline.stage(2), popxl.ipu(0):
                saved = pipeline.stash_and_restore_activations(call, bwd_0.grad_graph_info)
                bwd_0.bind(means_0).call(dx, args=saved)
        for i, (variables, means) in enumerate(((vars_0, means_0), (vars_1, means_1))):
            with popxl.ipu(i):
                optimise(variables, means, f"optim_{i}")
    apply_pre_alias_patterns(ir, level="default")
    state = NamedTensors(first=vars_0, last=vars_1)
    return TaskSession(inputs, outputs, state, ir=ir, device_desc="ipu_hw")


def optimise(variables: NamedTensors, means: NamedTensors, prefix: str) -> None:
    """Adam on each variable, and new means."""
    grads = means.accum.to_dict()
    for name, variable in variables.to_dict().items():
        facts, graph = AdamOptimizerStep(cache=True).create_graph(
            variable, grads[name], lr=LR, weight_decay=0.0, eps=1e-6,
            first_order_dtype=popxl.float32,
        )  # fmt: skip
        graph.bind(facts.init(f"{prefix}.{name}")).call(variable, grads[name])
    ops.var_updates.accumulator_zero_(means.mean_accum_counter)


# -- against PyTorch -------------------------------------------------------------------------------


class DenseLayer(torch.nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        h = config.hidden
        self.heads = config.heads
        self.qkv = torch.nn.Linear(h, 3 * h, bias=False)
        self.out = torch.nn.Linear(h, h, bias=False)
        self.norm_1, self.norm_2 = torch.nn.LayerNorm(h), torch.nn.LayerNorm(h)
        self.up, self.down = torch.nn.Linear(h, 4 * h), torch.nn.Linear(4 * h, h, bias=False)

    def forward(self, x):
        q, k, v = (t.view(len(x), self.heads, -1).transpose(0, 1) for t in self.qkv(x).chunk(3, -1))
        mixed = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]
        x = self.norm_1(x + self.out(mixed.transpose(0, 1).reshape(len(x), -1)))
        hidden = torch.nn.functional.gelu(self.up(x), approximate="tanh")
        return self.norm_2(x + self.down(hidden))


class DenseBert(torch.nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        h = config.hidden
        self.word, self.position, self.types = (
            torch.nn.Embedding(n, h) for n in (config.vocab, 16, 16)
        )
        self.norm = torch.nn.LayerNorm(h)
        self.layers = torch.nn.ModuleList(DenseLayer(config) for _ in range(config.layers))
        self.squad = torch.nn.Linear(h, 2)

    def forward(self, words, types):
        x = self.word(words) + self.position(torch.arange(len(words))) + self.types(types)
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x)
        return self.squad(x).T


def mapping(state: NamedTensors, model: DenseBert) -> WeightsDict:
    """Values of all variables from the dense model."""

    def array(t):
        return to_numpy(t.data, popxl.float32)

    first, last = state.first, state.last
    embeddings = first.embeddings
    values = WeightsDict({
        embeddings.word.weight: array(model.word.weight),
        embeddings.position.weight: array(model.position.weight),
        embeddings.token_type.weight: array(model.types.weight),
    })  # fmt: skip
    values.update(LayerNorm.torch_mapping(embeddings.norm, model.norm))
    for block, layer in zip([first.layers[0], last.layers[0]], model.layers, strict=True):
        values.update(Linear.torch_mapping(block.attention.qkv, layer.qkv))
        values.update(Linear.torch_mapping(block.attention.output, layer.out))
        values.update(LayerNorm.torch_mapping(block.norm_1, layer.norm_1))
        values.update(LayerNorm.torch_mapping(block.norm_2, layer.norm_2))
        values.update(Linear.torch_mapping(block.feed_forward.intermediate, layer.up))
        values.update(Linear.torch_mapping(block.feed_forward.output, layer.down))
    values.update(Linear.torch_mapping(last.squad, model.squad))
    return values


def run() -> None:
    """Losses and weights after a step are those of Adam on the dense model."""
    config, draw = CONFIG, np.random.default_rng(0)
    torch.manual_seed(0)
    model = DenseBert(config)
    words = draw.integers(0, config.vocab, (STEPS, config.rows)).astype(np.int32)
    types = draw.integers(0, 2, (STEPS, config.rows)).astype(np.int32)
    labels = draw.integers(0, config.sequence, (STEPS, 2)).astype(np.int32)
    session = training(config)
    inputs = session.inputs
    with session:
        session.write_variables_data(mapping(session.state, model))
        feed = {inputs.words: words, inputs.types: types, inputs.labels: labels}
        losses = session.run(feed)[session.outputs.loss].ravel()
        data = (torch.from_numpy(t).long() for t in (words, types, labels))
        expected = [
            torch.nn.functional.cross_entropy(model(w, t), y) for w, t, y in zip(*data, strict=True)
        ]
        adam = torch.optim.Adam(model.parameters(), lr=LR, eps=1e-6)
        (sum(expected) / STEPS).backward()
        adam.step()
        np.testing.assert_allclose(losses, [t.item() for t in expected], rtol=1e-4)
        for variable, array in mapping(session.state, model).items():
            got = session.get_tensor_data(variable)
            np.testing.assert_allclose(got, array, rtol=1e-3, atol=2e-3, err_msg=variable.name)


if __name__ == "__main__":
    run()

"""GPT trained in phases: weights, states and activations in remote memory, shards over replicas."""

from functools import partial

import numpy as np
import torch

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons import TaskSession
from popxl_addons.array_munging import shard, tensor_parallel_input
from popxl_addons.graph import GraphWithNamedArgs
from popxl_addons.layers import LayerNorm
from popxl_addons.named_replica_grouping import NamedReplicaGrouping, get_ild_replica_grouping
from popxl_addons.named_tensors import NamedTensors
from popxl_addons.ops.cross_entropy_sharded_loss import cross_entropy_sharded_loss
from popxl_addons.ops.grad_reduce_square_add import grad_reduce_square_add
from popxl_addons.ops.replicated_all_reduce_TP import replicated_all_reduce_identical_inputs
from popxl_addons.optimizers.adam import AdamOptimizerStep
from popxl_addons.patterns import apply_pre_alias_patterns
from popxl_addons.remote import load_remote_graph, named_variable_buffers, store_remote_graph
from popxl_addons.rts import (
    all_gather_replica_sharded_graph,
    reduce_replica_sharded_graph,
    replica_sharded_spec,
)
from popxl_addons.transforms.batch_serialisation import (
    RemoteHandle,
    batch_serial_buffer,
    batch_serialise,
    batch_serialise_fwd_and_grad,
)
from popxl_addons.utils import timer
from popxl_addons.variable_factory import NamedVariableFactories
from tests.frontends.popxl_addons.programs.parts import (
    Attention,
    Config,
    FeedForward,
    dense_attention,
    dense_weights,
    qkv_shards,
)

CONFIG = Config(tp=2, dp=2, heads=2, hidden=8, vocab=32, accumulation=2)
LR, EPS, DECAY, SCALE, CLIP = 0.01, 1e-6, 0.01, 8.0, 1.0
N_STEPS = 2


class Layer(addons.Module):
    """A decoder layer."""

    def __init__(self, config: Config):
        super().__init__()
        self.ln_1, self.attention = LayerNorm(), Attention(config)
        self.ln_2, self.feed_forward = LayerNorm(), FeedForward(config)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        x = x + self.attention(self.ln_1(x))
        return x + self.feed_forward(self.ln_2(x))


class Loss(addons.Module):
    """The loss of scores, of which replicas have some words each."""

    def __init__(self, config: Config):
        super().__init__()
        self.config, self.group = config, config.weight_group()
        self.ln_f = LayerNorm()

    def build(self, x: popxl.Tensor, labels: popxl.Tensor) -> popxl.Tensor:
        config, tp = self.config, self.group.transpose()
        n = config.vocab // config.tp
        weight = self.add_variable_input(
            "head.weight", partial(np.zeros, (config.hidden, n)), x.dtype,
            replica_grouping=self.group,
        )  # fmt: skip
        each = popxl.gcg().ir.replica_grouping(stride=config.tp, group_size=config.dp)
        first = self.add_variable_input(
            "offset", iter(n * np.arange(2 * config.tp, dtype=np.int32)), popxl.int32,
            replica_grouping=each,
        )  # fmt: skip
        z = replicated_all_reduce_identical_inputs(self.ln_f(x), group=tp)
        return cross_entropy_sharded_loss(z @ weight, labels - first, replica_grouping=tp)


class LossAndGrad(addons.Module):
    """The head, its loss and its gradient in one graph."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config

    def build(self, x: popxl.Tensor, labels: popxl.Tensor):
        facts, graph = Loss(self.config).create_graph(x, labels)
        trained = graph.args.copy()
        trained.pop("offset")
        grad_facts, gradient = addons.autodiff_with_accumulation(
            graph, trained.tensors, grads_required=graph.graph.inputs[:1],
            replica_groupings=facts.replica_groupings,
        )  # fmt: skip
        call = graph.bind(self.add_variable_inputs("fwd", facts)).call_with_info(x, labels)
        means = self.add_variable_inputs("bwd", grad_facts)
        seed = popxl.constant(SCALE, x.dtype, name="loss_scaling")
        (dx,) = gradient.bind(means).call(seed, args=gradient.grad_graph_info.inputs_dict(call))
        return call.outputs[0], dx


def rts_groups(facts: NamedVariableFactories) -> NamedReplicaGrouping:
    """Replicas that share each variable: those that have the same, if its elements divide."""
    ir, groups = popxl.gcg().ir, {}
    for name, fact in facts.to_dict().items():
        group = get_ild_replica_grouping(fact.replica_grouping)
        divides = np.prod(fact.meta_shape or fact.shape) % group.group_size == 0
        groups[name] = group if divides else ir.replica_grouping(group_size=1)
    return NamedReplicaGrouping.from_dict(groups)


def optimizer_graphs(variables: NamedTensors, facts, groups: NamedReplicaGrouping):
    """A step of Adam for each variable."""
    made, graphs = {}, {}
    for name, t in variables.to_dict().items():
        spec = replica_sharded_spec(t, shard_over=groups.to_dict()[name])
        made[name], graphs[name] = AdamOptimizerStep().create_graph(
            spec, spec, lr=popxl.TensorSpec((), popxl.float32),
            replica_grouping=facts.to_dict()[name].replica_grouping,
            weight_decay=DECAY if name.endswith("weight") else 0.0,
            beta1=0.9, beta2=0.999, eps=EPS, first_order_dtype=popxl.float32, loss_scaling=SCALE,
            global_norm=popxl.TensorSpec((), popxl.float32), global_norm_max=CLIP,
        )  # fmt: skip
    return NamedVariableFactories.from_dict(made), graphs


class Graphs:
    """Graphs of one kind of layer, and of its transfers."""

    def __init__(self, config: Config, fwd_facts, trained: NamedTensors, grads, entries: int):
        self.entries = entries
        trained_facts = fwd_facts.filter_keys(trained.keys_flat())
        states, self.optim = optimizer_graphs(trained, trained_facts, rts_groups(trained_facts))
        facts = NamedVariableFactories(fwd=fwd_facts, optim=states, bwd=grads.copy())
        facts.bwd.pop("mean_accum_counter")
        self.facts, self.grad_facts = facts, grads
        groups = rts_groups(facts)
        over = {name: group.group_size for name, group in groups.to_dict().items()}
        self.buffers = named_variable_buffers(facts, entries, shard_over_dict=over)
        self.load_all, self.all_names = load_remote_graph(self.buffers, entries)
        kept = self.buffers.copy()
        self.store_grads = store_remote_graph(kept.pop("bwd"), entries)
        self.store_kept = store_remote_graph(kept, entries)
        self.load_fwd, self.fwd_names = load_remote_graph(self.buffers.fwd, entries)
        loaded = NamedTensors.pack(self.fwd_names, self.load_fwd.graph.outputs)
        self.gather, _ = all_gather_replica_sharded_graph(loaded, replica_groups=groups.fwd)
        accums = NamedTensors.from_dict(
            {n: popxl.TensorSpec(f.shape, f.dtype) for n, f in facts.bwd.to_dict().items()}
        )
        dp = popxl.gcg().ir.replica_grouping(stride=config.tp, group_size=config.dp)
        self.reduce, self.reduced_names = reduce_replica_sharded_graph(
            accums, "mean", shard_groups=groups.bwd, replica_group=dp
        )
        self.groups = groups

    def weights(self, i) -> NamedTensors:
        """The whole weights of an entry."""
        shards = NamedTensors.pack(self.fwd_names, self.load_fwd.call(i))
        return NamedTensors.pack(self.fwd_names, self.gather.bind(shards).call())

    def add_norm(self, norm: popxl.Tensor, grads: NamedTensors) -> None:
        """Each replica adds its part of the squares, so that all together count each once."""
        for name, t in grads.to_dict().items():
            group = self.facts.bwd.to_dict()[name].replica_grouping
            n_equal = group.group_size / (self.groups.bwd.to_dict()[name].group_size
                                          if t.meta_shape else 1)  # fmt: skip
            ops.add_(norm, grad_reduce_square_add(t, SCALE) * (1 / n_equal))

    def finish(self, means: NamedTensors, norm: popxl.Tensor, i) -> None:
        """Reduce the mean gradients, store them, and start the next means."""
        grads = means.copy()
        counter = grads.pop("mean_accum_counter")
        reduced = NamedTensors.pack(self.reduced_names, self.reduce.bind(grads).call())
        self.add_norm(norm, reduced)
        self.store_grads.bind(reduced).call(i)
        ops.var_updates.accumulator_zero_(counter)

    def step(self, i, lr: popxl.Tensor, norm: popxl.Tensor) -> None:
        """Adam on an entry."""
        ts = NamedTensors.pack(self.all_names, self.load_all.call(i))
        grads = ts.bwd.accum.to_dict()
        for name, graph in self.optim.items():
            graph.bind(ts.optim.get(name)).call(ts.fwd.get(name), grads[name], lr, norm)
        ts.pop("bwd")
        self.store_kept.bind(ts).call(i)


def training(config: Config) -> TaskSession:
    """A session whose run is one step of training."""
    ir = popxl.Ir(replication=config.dp * config.tp)
    options = ir._pb_ir.getSessionOptions()
    options.numIOTiles = 32
    ir.num_host_transfers = config.accumulation
    steps, n = config.accumulation, config.layers
    with timer("PopXL IR construction"), ir.main_graph:
        shape = (config.rows, config.hidden)
        inputs = addons.InputStreams(
            x=(shape, popxl.float32), labels=((config.rows,), popxl.int32), lr=((), popxl.float32)
        )
        outputs = addons.OutputStreams(loss=((), popxl.float32), norm=((), popxl.float32))
        rows = inputs.x.spec
        tp = ir.replica_grouping(stride=1, group_size=config.tp)
        x_buffer, dx_buffer = (batch_serial_buffer(rows, steps, n + 1, tp) for _ in range(2))
        facts, fwd = Layer(config).create_graph(rows)
        grads, bwd = addons.autodiff_with_accumulation(
            fwd, fwd.args.tensors, grads_required=fwd.graph.inputs[:1],
            replica_groupings=facts.replica_groupings,
        )  # fmt: skip
        bwd = addons.recompute_graph(bwd)
        layer = Graphs(config, facts, fwd.args, grads, n)
        forward, backward = batch_serialise_fwd_and_grad(
            fwd, bwd, fwd.args, steps,
            load_handles={
                fwd.graph.inputs[0]: RemoteHandle(x_buffer, 0, tp),
                bwd.graph.inputs[0]: RemoteHandle(dx_buffer, 1, tp),
            },
            store_streams={},
            store_buffers={
                fwd.graph.outputs[0]: RemoteHandle(x_buffer, 1, tp),
                bwd.graph.outputs[0]: RemoteHandle(dx_buffer, 0, tp),
            },
            rows=n, io_mode="io_overlapped",
        )  # fmt: skip
        head_facts, both = LossAndGrad(config).create_graph(rows, inputs.labels.spec)
        trained = both.args.fwd.copy()
        trained.pop("offset")
        head = Graphs(config, head_facts.fwd, trained, head_facts.bwd, 1)
        head_loop = batch_serialise(
            both, steps,
            load_handles={both.graph.inputs[0]: RemoteHandle(x_buffer, n, tp),
                          both.graph.inputs[1]: inputs.labels},
            store_streams={both.graph.outputs[0]: outputs.loss},
            store_buffers={both.graph.outputs[1]: RemoteHandle(dx_buffer, n, tp)},
            io_mode="io",
        ).graph  # fmt: skip
        store = store_inputs(inputs.x, x_buffer, steps, tp)
        state = NamedTensors(
            layers=NamedTensors.from_dict(
                {i: layer.facts.init_remote(layer.buffers, i, f"layer.{i}") for i in range(n)}
            ),
            head=head.facts.init_remote(head.buffers, 0, "head"),
        )
        means = layer.grad_facts.init_zero()
        head_means = head.grad_facts.init_zero()
        with popxl.in_sequence():
            lr = ops.host_load(inputs.lr)
            norm = ops.init((), popxl.float32, "norm", "zero")
            store()
            for i in range(n):
                forward.graph.bind(layer.weights(i)).call(i)
            args = NamedTensors(fwd=head.weights(0), bwd=head_means)
            head_loop.bind(args).call(0)
            head.finish(head_means, norm, 0)
            for i in reversed(range(n)):
                bound = layer.weights(i)
                bound.update(means)
                backward.graph.bind(bound).call(i)
                layer.finish(means, norm, i)
            norm = ops.sqrt(ops.collectives.replicated_all_reduce(norm))
            ops.host_store(outputs.norm, norm)
            for i in range(n):
                layer.step(i, lr, norm)
            head.step(0, lr, norm)
    apply_pre_alias_patterns(ir, level="default")
    return TaskSession(inputs, outputs, state, ir=ir, device_desc="ipu_hw")


def store_inputs(stream, buffer: popxl.RemoteBuffer, steps: int, group):
    """Rows from the host into row 0 of the activations: the embedding's part of the program."""
    graph = popxl.gcg().ir.create_empty_graph("rows")
    with graph:
        popxl.graph_output(popxl.graph_input(stream.shape, stream.dtype, "x") + 0)
    named = GraphWithNamedArgs(graph)
    loop = batch_serialise(
        named, steps, {graph.inputs[0]: stream}, {},
        {graph.outputs[0]: RemoteHandle(buffer, 0, group)}, io_mode="compute",
    )  # fmt: skip
    return partial(loop.graph.call, 0)


# -- against PyTorch -------------------------------------------------------------------------------


def dense_loss(config: Config, w: dict, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The loss of one sample."""
    norm = torch.nn.functional.layer_norm
    for i in range(config.layers):
        z = norm(x, (config.hidden,), w[f"ln_1.{i}"], w[f"bias_1.{i}"])
        x = x + dense_attention(z, w[f"qkv.{i}"], w[f"out.{i}"], config)
        z = norm(x, (config.hidden,), w[f"ln_2.{i}"], w[f"bias_2.{i}"])
        up = torch.nn.functional.gelu(z @ w[f"up.{i}"] + w[f"bias.{i}"], approximate="tanh")
        x = x + up @ w[f"down.{i}"]
    scores = norm(x, (config.hidden,), w["ln_f"], w["bias_f"]) @ w["head"]
    return torch.nn.functional.cross_entropy(scores, labels)


def weights_of(config: Config) -> dict[str, torch.Tensor]:
    h = config.hidden
    shapes = {"qkv": (h, 3 * h), "out": (h, h), "up": (h, 4 * h), "down": (4 * h, h)}
    shapes |= {"bias": (4 * h,), "ln_1": (h,), "ln_2": (h,), "bias_1": (h,), "bias_2": (h,)}
    named = {f"{name}.{i}": s for i in range(config.layers) for name, s in shapes.items()}
    return dense_weights(1, ln_f=(h,), bias_f=(h,), head=(h, config.vocab), **named)


def session_values(config: Config, state: NamedTensors, w: dict) -> dict:
    """Arrays of the session's variables."""
    arrays, tp = {name: t.detach().numpy() for name, t in w.items()}, config.tp
    result = {}
    for i in range(config.layers):
        fwd = state.layers[i].fwd
        result |= {
            fwd.ln_1.weight: arrays[f"ln_1.{i}"],
            fwd.ln_2.weight: arrays[f"ln_2.{i}"],
            fwd.ln_1.bias: arrays[f"bias_1.{i}"],
            fwd.ln_2.bias: arrays[f"bias_2.{i}"],
            fwd.attention.qkv.weight: qkv_shards(arrays[f"qkv.{i}"], tp),
            fwd.attention.output.weight: shard(arrays[f"out.{i}"], tp, 0),
            fwd.feed_forward.intermediate.weight: shard(arrays[f"up.{i}"], tp, 1),
            fwd.feed_forward.intermediate.bias: shard(arrays[f"bias.{i}"], tp, 0),
            fwd.feed_forward.output.weight: shard(arrays[f"down.{i}"], tp, 0),
        }
    head = state.head.fwd
    result |= {
        head.ln_f.weight: arrays["ln_f"],
        head.ln_f.bias: arrays["bias_f"],
        head.head.weight: shard(arrays["head"], tp, 1),
    }
    return result


def run() -> None:
    """Losses, norms and weights of two steps are those of AdamW on the dense model."""
    config, draw = CONFIG, np.random.default_rng(0)
    n = config.dp * config.accumulation
    x = draw.normal(size=(n, config.rows, config.hidden)).astype(np.float32)
    labels = draw.integers(0, config.vocab, (n, config.rows)).astype(np.int32)
    weights = {name: t.requires_grad_() for name, t in weights_of(config).items()}
    session = training(config)
    feed = partial(tensor_parallel_input, tp=config.tp, rf=config.dp * config.tp)
    shape = (config.accumulation, config.dp * config.tp)
    data = {
        session.inputs.x: feed(x),
        session.inputs.labels: feed(labels),
        session.inputs.lr: np.full(shape, LR, np.float32),
    }
    decayed = [t for name, t in weights.items() if "bias" not in name]
    others = [t for name, t in weights.items() if "bias" in name]
    adam = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
        lr=LR, betas=(0.9, 0.999), eps=EPS,
    )  # fmt: skip
    with session:
        session.write_variables_data(session_values(config, session.state, weights))
        for _ in range(N_STEPS):
            result = session.run(data)
            adam.zero_grad()
            samples = zip(torch.from_numpy(x), torch.from_numpy(labels).long(), strict=True)
            losses = [dense_loss(config, weights, *sample) for sample in samples]
            (sum(losses) / n).backward()
            norm = torch.nn.utils.clip_grad_norm_(list(weights.values()), CLIP)
            adam.step()
            expected = np.repeat([float(t.detach()) for t in losses], config.tp).reshape(shape)
            np.testing.assert_allclose(result[session.outputs.loss], expected, rtol=1e-4)
            np.testing.assert_allclose(result[session.outputs.norm][0], norm, rtol=1e-3)
        values = session.get_named_tensors_data()
        assert values.layers[0].fwd.attention.qkv.weight.shape[0] == config.tp
        for variable, array in session_values(config, session.state, weights).items():
            got = session.get_tensor_data(variable)
            np.testing.assert_allclose(got, array, rtol=2e-3, atol=2e-4, err_msg=variable.name)


if __name__ == "__main__":
    run()

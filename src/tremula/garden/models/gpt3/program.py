"""One step of training as a program of phases: all weights, states and activations stream.

1 embedding forward · 2 layers forward · 3 head, both ways · 4 layers backward, computed again
5 embedding backward, norm of all gradients · 6 update of layers · 7 update of the rest
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons import NamedTensors
from popxl_addons.transforms import (  # pyright: ignore[reportMissingImports] - from the table of modules
    RemoteHandle,
    batch_serial_buffer,
    batch_serialise,
    batch_serialise_fwd_and_grad,
)
from tremula.frontends.popxl.ops.random import modified_seed
from tremula.frontends.popxl_addons.transforms.recomputation import input_like
from tremula.garden.models.gpt3.config import GPTConfig
from tremula.garden.models.gpt3.ends import LanguageModelHead, ShardedEmbedding
from tremula.garden.models.gpt3.layers import Build, ShardedDecoderLayer
from tremula.garden.models.gpt3.replicas import Replicas
from tremula.garden.models.gpt3.streamed_weights import StreamedWeights


@dataclass
class GPTProgram:
    """The Ir of a training step, its streams, and the variables that a session reads."""

    config: GPTConfig
    data: Any  # Weight → values, see `layers.Build`
    empty: bool = False
    ir: popxl.Ir = field(init=False)

    def __post_init__(self) -> None:
        config = self.config
        self.ir = popxl.Ir(replication=config.parallel.n_replicas)
        self.ir.num_host_transfers = config.accumulation
        self.replicas = Replicas(self.ir, config.parallel)
        self.build = Build(config, self.replicas, self.data)
        with self.ir.main_graph, popxl.in_sequence(True):
            rows = (config.n_rows,)
            self.words = popxl.h2d_stream(rows, popxl.int32, "words")
            self.labels = popxl.h2d_stream(rows, popxl.int32, "labels")
            self.rate = popxl.h2d_stream((), popxl.float32, "learning_rate")
            self.losses = popxl.d2h_stream((), self.build.dtype, "loss")
            self.seeds = self._seeds()
            self._make_graphs()
            self._make_phases()

    # -- dropout --

    def _seeds(self) -> list[popxl.Tensor]:
        """The seed of this step, if something is dropped; the variable gets the next one's.

        It is the same on all of tp1, as rows are.
        """
        if not self.config.model.dropout:
            return []
        seed, _ = addons.seed_variable(self.config.training.seed, self.replicas.tp1)
        own, following = ops.split_random_seed(seed)
        ops.var_updates.copy_var_update_(seed, following)
        return [own]

    @property
    def _seed_specs(self) -> list[popxl.TensorSpec]:
        return [seed.spec for seed in self.seeds]

    def _seed_input(self, graph: addons.GraphWithNamedArgs) -> popxl.Tensor | None:
        """Of a graph whose first input are rows or words."""
        return graph.graph.inputs[1] if self.seeds else None

    # -- graphs: each of them once --

    @cached_property
    def rows(self) -> popxl.TensorSpec:
        """The activation between two layers."""
        columns = self.config.model.hidden // self.config.parallel.tensor_2
        return popxl.TensorSpec((self.config.n_rows, columns), self.build.dtype)

    def _make_graphs(self) -> None:
        n = self.config.model.n_layers
        # Rows are the same on all of tp1, which can share them out.
        n_steps, group = self.config.accumulation, self.replicas.tp1
        self.activations, self.gradients = (
            RemoteHandle(batch_serial_buffer(self.rows, n_steps, n + 1, group), 0, group)
            for _ in range(2)
        )
        self._make_embedding()
        self._make_layer()
        self._make_head()

    def _row(self, handle: RemoteHandle, offset: int) -> RemoteHandle:
        return RemoteHandle(handle.buffer, offset, handle.shard_group)

    def _make_embedding(self) -> None:
        words = popxl.TensorSpec((self.config.n_rows,), popxl.int32)
        factories, graph = ShardedEmbedding(self.build).create_graph(words, *self._seed_specs)
        self.embedding, fixed = self._held(factories, ("word", "position"), 1)
        self.embedding_fixed = fixed.init("embedding")
        word = self.embedding.gradients.word
        self.tied = popxl.remote_buffer(word.tensor_shape, word.tensor_dtype)
        self.tied.meta_shape = word.meta_shape
        trained = [graph.args.word, graph.args.position]
        sums, gradient = addons.autodiff_with_accumulation(graph, trained, grads_required=[])
        self.embedding_sums = sums
        serial = batch_serialise_fwd_and_grad(
            graph, gradient, graph.args, self.config.accumulation,
            load_handles={
                graph.graph.inputs[0]: self.words,
                gradient.graph.inputs[0]: self.gradients,
            },
            store_streams={},
            store_buffers={graph.graph.outputs[0]: self.activations},
            seed_input=self._seed_input(graph),
            io_mode=self.config.machine.io_mode,
        )  # fmt: skip
        self.embedding_forward, self.embedding_backward = (result.graph for result in serial)

    def _make_layer(self) -> None:
        factories, graph = ShardedDecoderLayer(self.build).create_graph(
            self.rows, *self._seed_specs
        )
        self.layers, _ = self._held(factories, None, self.config.model.n_layers)
        x, y = graph.graph.inputs[0], graph.graph.outputs[0]
        sums, gradient = addons.autodiff_with_accumulation(
            graph, graph.args.tensors, grads_required=[x]
        )
        popxl.transforms.decompose_sum(gradient.graph)  # of keys: each part's is added at once
        gradient = addons.recompute_graph(gradient)
        self.layer_sums, self.layer_graph, self.layer_gradient = sums, graph, gradient
        serial = batch_serialise_fwd_and_grad(
            graph, gradient, graph.args, self.config.accumulation,
            load_handles={
                x: self.activations,
                gradient.graph.inputs[0]: self._row(self.gradients, 1),
            },
            store_streams={},
            store_buffers={
                y: self._row(self.activations, 1),
                gradient.graph.outputs[0]: self.gradients,
            },
            seed_input=self._seed_input(graph),
            rows=self.config.model.n_layers,
            io_mode=self.config.machine.io_mode,
        )  # fmt: skip
        self.layer_forward, self.layer_backward = (result.graph for result in serial)

    def _make_head(self) -> None:
        word = self.embedding.weights.word
        table = popxl.TensorSpec(word.meta_shape or word.tensor_shape, self.build.dtype)
        labels = popxl.TensorSpec((self.config.n_rows,), popxl.int32)
        factories, graph = LanguageModelHead(self.build).create_graph(self.rows, table, labels)
        self.head, fixed = self._held(factories, ("ln_f.weight", "ln_f.bias"), 1)
        self.head_fixed = fixed.init("head")
        x, table, labels = graph.graph.inputs[:3]
        trained = [graph.args.ln_f.weight, graph.args.ln_f.bias, table]
        sums, gradient = addons.autodiff_with_accumulation(graph, trained, grads_required=[x])
        self.head_sums = sums
        both, (x, table, labels) = self._both_ways(graph, gradient)
        self.head_graph = both
        last = self.config.model.n_layers
        self.head_both = batch_serialise(
            both, self.config.accumulation,
            load_handles={x: self._row(self.activations, last), labels: self.labels},
            store_streams={both.graph.outputs[0]: self.losses},
            store_buffers={both.graph.outputs[1]: self._row(self.gradients, last)},
            io_mode=self.config.machine.io_mode,
        ).graph  # fmt: skip

    def _both_ways(
        self, graph: addons.GraphWithNamedArgs, gradient: addons.GraphWithNamedArgs
    ) -> tuple[addons.GraphWithNamedArgs, list[popxl.Tensor]]:
        """The head's graph and its gradient, one after the other: loss and gradient of rows."""
        both = self.ir.create_empty_graph("head_both_ways")
        with both, popxl.in_sequence(True):
            own = {t: input_like(t) for t in graph.graph.inputs}
            info = graph.call_with_info(args=own)
            sums = {t: input_like(t, True) for t in gradient.args.tensors}
            scale = popxl.constant(self.config.training.loss_scaling, self.build.dtype, "scale")
            operands = gradient.grad_graph_info.inputs_dict(info)
            (dx,) = gradient.call(scale, args={**operands, **sums})
            popxl.graph_output(info.outputs[0])
            popxl.graph_output(dx)
        args = graph.args.remap(own)
        args.insert("table", own[graph.graph.inputs[1]])
        args.update(gradient.args.remap(sums))
        named = addons.GraphWithNamedArgs(both, args)
        return named, [own[t] for t in graph.graph.inputs[:3]]

    def _held(
        self, factories: addons.NamedVariableFactories, trained: tuple[str, ...] | None, n: int
    ) -> tuple[StreamedWeights, addons.NamedVariableFactories]:
        """Trained weights in streaming memory, and factories of what never changes."""
        names = factories.keys_flat() if trained is None else trained
        others = [name for name in factories.keys_flat() if name not in names]
        weights = StreamedWeights(
            self.config, self.replicas, factories.filter_keys(names), n, empty=self.empty
        )
        return weights, factories.filter_keys(others)

    # -- phases: each is a graph, run once or for each layer --

    def _make_phases(self) -> None:
        rate = ops.host_load(self.rate, "learning_rate")
        square = ops.init((), popxl.float32, "square_norm")
        seeds = self.seeds
        fixed = self.embedding_fixed
        self._phase("embedding_forward", self._embedding_forward, *seeds, fixed=fixed)
        self._repeat("layers_forward", self._layer_forward, 0, *seeds)
        self._phase("head_both_ways", self._head_both_ways, square, fixed=self.head_fixed)
        self._repeat("layers_backward", self._layer_backward, -1, square)
        norm = self._phase("embedding_backward", self._embedding_backward, square, fixed=fixed)
        operands = [rate, *norm]
        self._phase("embedding_update", self._update(self.embedding), *operands)
        self._repeat("layers_update", self.layers.update, 0, *operands)
        self._phase("head_update", self._update(self.head), *operands)

    def _phase(
        self,
        name: str,
        phase: Callable[..., Any],
        *x: popxl.Tensor,
        fixed: NamedTensors | None = None,
    ) -> tuple[popxl.Tensor, ...]:
        """A phase that runs once; tensors are passed by reference."""
        graph = self.ir.create_empty_graph(name)
        tensors = fixed or NamedTensors()
        with graph, popxl.in_sequence(True):
            own = [input_like(t, True) for t in x]
            named = tensors.map(input_like)
            for t in phase(*own, *([named] if fixed else [])) or ():
                popxl.graph_output(t)
        return ops.call(graph, *x, *tensors.tensors)

    def _repeat(self, name: str, phase: Callable[..., Any], first: int, *x: popxl.Tensor) -> None:
        """A phase for each layer, from the first on, or, from -1, backwards."""
        n = self.config.model.n_layers
        body = self.ir.create_empty_graph(name)
        with body, popxl.in_sequence(True):
            layer = popxl.graph_input((), popxl.int32, "layer")
            phase(layer, *[input_like(t, True) for t in x])
            popxl.graph_output(layer + (1 if first == 0 else -1))
        start = popxl.constant(first % n, popxl.int32, "first_layer")
        ops.repeat(body, n, start, *x)

    def _update(self, weights: StreamedWeights) -> Callable[..., None]:
        return lambda *x: weights.update(0, *x)

    def _embedding_forward(self, *x: popxl.Tensor | NamedTensors) -> None:
        *seeds, fixed = x
        assert isinstance(fixed, NamedTensors), "what never changes comes last"
        own = [modified_seed(seed, self.config.model.n_layers) for seed in seeds]
        self.embedding_forward.bind(_with(self.embedding.gathered(0), fixed)).call(0, *own)

    def _layer_forward(self, layer: popxl.Tensor, *seeds: popxl.Tensor) -> None:
        """Each micro-batch's seed is stored beside its rows: the backward pass draws alike."""
        own = [modified_seed(seed, layer) for seed in seeds]
        self.layer_forward.bind(self.layers.gathered(layer)).call(layer, *own)

    def _head_both_ways(self, square: popxl.Tensor, fixed: NamedTensors) -> None:
        table = NamedTensors(table=self.embedding.gathered(0).word)  # the head has no table
        sums = self.head_sums.init_zero()
        self.head_both.bind(_with(self.head.gathered(0), fixed, table, sums)).call(0)
        gradients = sums.accum.copy()
        tied = gradients.pop(next(name for name in gradients.keys() if name != "ln_f"))  # noqa: SIM118
        own = self.head.reduced(gradients)
        self.head.add_square_norm(own, square)
        self.head.store_gradients(own, 0)
        ops.remote_store(self.tied, 0, self.embedding.reduced_one("word", tied))

    def _layer_backward(self, layer: popxl.Tensor, square: popxl.Tensor) -> None:
        sums = self.layer_sums.init_zero()
        self.layer_backward.bind(_with(self.layers.gathered(layer), sums)).call(layer)
        gradients = self.layers.reduced(sums.accum)
        self.layers.add_square_norm(gradients, square)
        self.layers.store_gradients(gradients, layer)

    def _embedding_backward(self, square: popxl.Tensor, fixed: NamedTensors) -> list[popxl.Tensor]:
        """Gradients of both tables, the head's added; the norm of all gradients there are."""
        sums = self.embedding_sums.init_zero()
        weights = _with(self.embedding.gathered(0), fixed)
        self.embedding_backward.bind(_with(weights, sums)).call(0)
        gradients = self.embedding.reduced(sums.accum)
        ops.add_(gradients.word, ops.remote_load(self.tied, 0, "tied"))
        self.embedding.add_square_norm(gradients, square)
        self.embedding.store_gradients(gradients, 0)
        if not self.config.training.max_grad_norm:
            return []
        return [ops.sqrt(ops.collectives.replicated_all_reduce(square, "add"))]


def _with(*trees: NamedTensors) -> NamedTensors:
    joined = NamedTensors()
    for tree in trees:
        joined.update(tree)
    return joined

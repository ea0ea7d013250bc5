"""Weights of one kind of layer in streaming memory: fetched, gathered, reduced, updated, stored.

Every weight is sharded over the replicas that hold the same part of it; so are its gradient and
Adam's moments. Entry n of each buffer is layer n.
"""

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons import NamedTensors
from popxl_addons.ops.grad_reduce_square_add import grad_reduce_square_add  # pyright: ignore[reportMissingImports] - from the table of modules
from popxl_addons.optimizers import AdamOptimizerStep  # pyright: ignore[reportMissingImports] - from the table of modules
from popxl_addons.rts import reduce_replica_sharded_tensor  # pyright: ignore[reportMissingImports] - from the table of modules
from tremula.garden.models.gpt3.config import GPTConfig
from tremula.garden.models.gpt3.replicas import Replicas

Graph = tuple[addons.GraphWithNamedArgs, list[str]]  # with the names of its outputs


@dataclass
class StreamedWeights:
    """Buffers for weights, gradients and moments of `n_layers` equal layers, and what uses them."""

    config: GPTConfig
    replicas: Replicas
    factories: addons.NamedVariableFactories
    n_layers: int
    empty: bool = False  # make no data: for programs that are only compiled

    def __post_init__(self) -> None:
        self.groups = self.factories.replica_groupings
        over = {name: _n_shards(factory) for name, factory in self.factories.to_dict().items()}
        buffers = partial(addons.named_variable_buffers, entries=self.n_layers)
        self.weights = buffers(self.factories, shard_over_dict=over)
        self.gradients = buffers(self.factories, shard_over_dict=over)
        self.variables = [
            self.factories.init_remote(self.weights, n, f"layer_{n}", empty=self.empty)
            for n in range(self.n_layers)
        ]
        self.gather, self.reduce = self._graphs_of_all()
        self.step, self.step_args = self._optimiser_graph()
        self.state_buffers = buffers(self.step_args, shard_over_dict=False)
        self.states = [
            self.step_args.init_remote(self.state_buffers, n, f"layer_{n}.state", empty=True)
            for n in range(self.n_layers)
        ]

    # -- weights on the chip --

    def gathered(self, entry: int | popxl.Tensor) -> NamedTensors:
        """The weights of a layer, whole."""
        shards = addons.load_remote(self.weights, entry)
        graph, names = self.gather
        return NamedTensors.pack(names, graph.bind(shards).call())

    def _graphs_of_all(self) -> tuple[Graph, Graph]:
        """Graphs that gather all weights of a layer, and that reduce all its gradients."""
        shards: dict[str, Any] = {}
        whole: dict[str, Any] = {}
        for name, buffer in self.weights.to_dict().items():
            shape, dtype, meta = buffer.tensor_shape, buffer.tensor_dtype, buffer.meta_shape
            shards[name] = popxl.TensorSpec(shape, dtype, meta)
            whole[name] = popxl.TensorSpec(meta or shape, dtype)
        return (
            addons.all_gather_replica_sharded_graph(
                NamedTensors.from_dict(shards), replica_groups=self.groups
            ),
            addons.reduce_replica_sharded_graph(
                NamedTensors.from_dict(whole),
                "mean",
                shard_groups=self.groups,
                replica_group=self.replicas.dp,
            ),
        )

    # -- gradients --

    def reduced(self, gradients: NamedTensors) -> NamedTensors:
        """The mean over data parallel replicas of each gradient: this replica's shard of it."""
        graph, names = self.reduce
        return NamedTensors.pack(names, graph.bind(gradients).call())

    def reduced_one(self, name: str, gradient: popxl.Tensor) -> popxl.Tensor:
        """The reduced gradient of one weight, scattered to its shards."""
        group = self.groups.to_dict()[name].const_rg
        return reduce_replica_sharded_tensor(gradient, "mean", self.replicas.dp, group)

    def add_square_norm(self, shards: NamedTensors, total: popxl.Tensor) -> None:
        """Add the squares of these gradients to a sum that all replicas' parts will complete.

        Of every element as many replicas have a copy as hold its part, less those that share it
        out: each adds its fraction, so that the sum counts it once.
        """
        for name, t in shards.to_dict().items():
            group = self.groups.to_dict()[name]
            n_sharing = group.const_rg.group_size if t.meta_shape else 1
            square = grad_reduce_square_add(t, self.config.training.loss_scaling)
            ops.var_updates.accumulate_(total, square, n_sharing / group.group_size)

    def store_gradients(self, shards: NamedTensors, entry: int | popxl.Tensor) -> None:
        """Keep gradients until the norm of all is known."""
        addons.store_remote(self.gradients, shards, entry)

    # -- the update --

    def update(
        self, entry: int | popxl.Tensor, rate: popxl.Tensor, norm: popxl.Tensor | None = None
    ) -> None:
        """One step of Adam on the shards of a layer, in streaming memory."""
        weights = addons.load_remote(self.weights, entry)
        gradients = addons.load_remote(self.gradients, entry)
        states = addons.load_remote(self.state_buffers, entry)
        bound = self.step.bind(_joined(weight=weights, gradient=gradients, state=states))
        bound.call(rate, *([] if norm is None else [norm]))
        addons.store_remote(self.weights, weights, entry)
        addons.store_remote(self.state_buffers, states, entry)

    def _optimiser_graph(self) -> tuple[addons.GraphWithNamedArgs, addons.NamedVariableFactories]:
        """A graph that updates all weights of a layer, and factories of Adam's states."""
        graph = popxl.gcg().ir.create_empty_graph("optimiser")
        adam, args, factories = AdamOptimizerStep(cache=True), {}, {}
        scalar = popxl.TensorSpec((), popxl.float32)
        with graph, popxl.in_sequence(True):
            rate = popxl.graph_input(*scalar_spec(scalar), "learning_rate")
            clips = bool(self.config.training.max_grad_norm)
            norm = popxl.graph_input(*scalar_spec(scalar), "norm") if clips else None
            for name, buffer in self.weights.to_dict().items():
                shape, type_, meta = buffer.tensor_shape, buffer.tensor_dtype, buffer.meta_shape
                flat = name.replace(".", "_")
                own = [
                    popxl.graph_input(shape, type_, f"{what}_{flat}", by_ref, meta)
                    for what, by_ref in (("weight", True), ("gradient", False))
                ]
                state, step = adam.create_graph(
                    *own, self.groups.get(name), lr=rate, global_norm=norm, **self._settings()
                )
                inputs = {key: f.create_input() for key, f in state.to_dict().items()}
                named = NamedTensors.from_dict(inputs)
                step.bind(named).call(*own, rate, *([] if norm is None else [norm]))
                args[f"weight.{name}"], args[f"gradient.{name}"] = own
                args.update({f"state.{name}.{key}": t for key, t in inputs.items()})
                factories.update({f"{name}.{key}": f for key, f in state.to_dict().items()})
        return (
            addons.GraphWithNamedArgs(graph, NamedTensors.from_dict(args)),
            addons.NamedVariableFactories.from_dict(factories),
        )

    def _settings(self) -> dict[str, Any]:
        t = self.config.training
        return {
            "beta1": t.beta1, "beta2": t.beta2, "eps": t.epsilon, "weight_decay": t.weight_decay,
            "first_order_dtype": popxl.float32, "loss_scaling": t.loss_scaling,
            "global_norm_max": t.max_grad_norm or None,
        }  # fmt: skip


def scalar_spec(spec: popxl.TensorSpec) -> tuple[tuple[int, ...], popxl.dtype]:
    """Shape and type, as `graph_input` takes them."""
    return spec.shape, spec.dtype


def _n_shards(factory: addons.VariableFactory) -> int:
    """Replicas that share a weight: all that have the same, if its elements divide."""
    size = factory.replica_grouping.const_rg.group_size
    return 1 if prod(factory.shape) % size else size


def _joined(**trees: NamedTensors) -> NamedTensors:
    return NamedTensors(**trees)

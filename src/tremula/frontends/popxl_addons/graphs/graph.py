"""Graphs with named arguments: bound to tensors of a caller, and called."""

from collections.abc import Mapping

import popxl
from popxl import ops
from tremula.frontends.popxl.core.call_site import CallSiteInfo
from tremula.frontends.popxl.transforms.grad_info import GradGraphInfo
from tremula.frontends.popxl_addons.named.tensors import NamedTensors

TensorMap = Mapping[popxl.Tensor, popxl.Tensor]


class GraphWithNamedArgs:
    """A graph, names of some of its inputs, and, of a gradient graph, how it is connected."""

    def __init__(
        self,
        graph: popxl.Graph,
        args: NamedTensors | None = None,
        grad_graph_info: GradGraphInfo | None = None,
    ):
        self.graph = graph
        self.args = NamedTensors() if args is None else args
        self._grad_graph_info = grad_graph_info

    @classmethod
    def from_grad_graph(
        cls, info: GradGraphInfo, args: NamedTensors | None = None
    ) -> "GraphWithNamedArgs":
        """The graph that autodiff made."""
        return cls(info.graph, args, info)

    @property
    def grad_graph_info(self) -> GradGraphInfo:
        """What autodiff said about this graph."""
        if self._grad_graph_info is None:
            raise TypeError(f"{self.graph} is not a gradient graph: autodiff did not make it")
        return self._grad_graph_info

    def bind(self, args: NamedTensors | None = None) -> "BoundGraph":
        """The graph with tensors of the caller for its named inputs, by name."""
        return BoundGraph(self.graph, self.args.to_mapping(args) if args else {}, self)

    def call(self, *inputs: object, args: TensorMap | None = None) -> tuple:
        """Call the graph with inputs in order, and `args={input: tensor}` for others."""
        return self.bind().call(*inputs, args=args)

    def call_with_info(
        self, *inputs: object, args: TensorMap | None = None, check_inputs: bool = True
    ) -> CallSiteInfo:
        """Call the graph; gives what PopXL knows of the call."""
        return self.bind().call_with_info(*inputs, args=args, check_inputs=check_inputs)

    def __repr__(self) -> str:
        return f"GraphWithNamedArgs({self.graph}, {self.args.keys_flat()})"


class BoundGraph:
    """A graph and tensors for some of its inputs."""

    def __init__(
        self,
        graph: popxl.Graph,
        args: TensorMap | None = None,
        owner: GraphWithNamedArgs | None = None,
    ):
        self.graph = graph
        self.args: dict[popxl.Tensor, popxl.Tensor] = dict(args or {})
        self._owner = owner

    @property
    def grad_graph_info(self) -> GradGraphInfo:
        """What autodiff said about this graph."""
        return self._named.grad_graph_info

    @property
    def _named(self) -> GraphWithNamedArgs:
        assert self._owner is not None, f"{self.graph} has no named arguments"
        return self._owner

    def bind(self, args: NamedTensors) -> "BoundGraph":
        """The graph with further named inputs bound."""
        return BoundGraph(
            self.graph, {**self.args, **self._named.args.to_mapping(args)}, self._owner
        )

    def call(self, *inputs: object, args: TensorMap | None = None) -> tuple:
        """Call the graph; bound tensors and `args` go to their inputs, others in order."""
        return self.call_with_info(*inputs, args=args).outputs

    def call_with_info(
        self, *inputs: object, args: TensorMap | None = None, check_inputs: bool = True
    ) -> CallSiteInfo:
        """Call the graph; gives what PopXL knows of the call."""
        bound = {**self.args, **(args or {})}
        return ops.call_with_info(self.graph, *inputs, inputs_dict=bound, check_inputs=check_inputs)

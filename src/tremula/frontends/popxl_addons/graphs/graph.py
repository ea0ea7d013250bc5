"""Graphs with named arguments: bound to tensors of a caller, called, and differentiated."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol

import popxl
from popxl import ops
from popxl.transforms import autodiff as popxl_autodiff
from tremula.frontends.popxl.core.call_site import CallSiteInfo
from tremula.frontends.popxl.transforms.grad_info import GradGraphInfo
from tremula.frontends.popxl_addons.named.dot_tree import to_mapping
from tremula.frontends.popxl_addons.named.tensors import NamedTensors, TensorMap

Method = Literal["auto", "build_grad", "autodiff"]
METHODS = ("auto", "build_grad", "autodiff")
Tensors = Iterable[popxl.Tensor] | None


class GradientBuilder(Protocol):
    """A module, as far as differentiating its graph needs it."""

    @property
    def implements_grad_graph(self) -> bool: ...

    def create_grad_graph(
        self,
        fwd_graph: "GraphWithNamedArgs",
        grads_provided: Tensors = None,
        grads_required: Tensors = None,
    ) -> "GraphWithNamedArgs": ...


class BoundGraph:
    """A graph and tensors for some of its inputs."""

    def __init__(self, graph: popxl.Graph, args: TensorMap | None = None):
        self.graph = graph
        self.args: dict[popxl.Tensor, popxl.Tensor] = dict(args or {})

    def bind(self, args: TensorMap) -> "BoundGraph":
        """The graph with tensors for further inputs; those bound before can be replaced."""
        return BoundGraph(self.graph, {**self.args, **args})

    def call(self, *targs: object, args: TensorMap | None = None) -> tuple[popxl.Tensor, ...]:
        """Call the graph; bound tensors and `args` go to their inputs, others in order."""
        return self.call_with_info(*targs, args=args).outputs

    def call_with_info(self, *targs: object, args: TensorMap | None = None) -> CallSiteInfo:
        """Call the graph; the result says which tensor outside is which inside."""
        return ops.call_with_info(self.graph, *targs, inputs_dict={**self.args, **(args or {})})

    def subgraph_io_map(
        self,
        *targs: popxl.Tensor,
        args: TensorMap | None = None,
        outs: Iterable[popxl.Tensor] | None = None,
    ) -> dict[popxl.Tensor, popxl.Tensor]:
        """Inputs and outputs of the graph, to the tensors of a call: `targs`, `args`, `outs`."""
        return {
            **dict(zip(self.graph.outputs, outs or (), strict=False)),
            **self.args,
            **(args or {}),
            **dict(zip(self.graph.inputs, targs, strict=False)),
        }


class GraphWithNamedArgs:
    """A graph, names of some of its inputs, and how it is differentiated.

    A gradient graph has `grad_graph_info`. The graph of a module knows the module, what it saved
    for its gradient (`aux`), and gradients of graphs that it calls.
    """

    def __init__(
        self,
        graph: popxl.Graph,
        args: NamedTensors | None = None,
        grad_graph_info: GradGraphInfo | None = None,
        from_module: GradientBuilder | None = None,
        aux: object = None,
        called_graphs_grad_info: "Mapping[Any, GradGraphInfoLike] | None" = None,
    ):
        self.graph = graph
        self.args = NamedTensors() if args is None else args
        self._grad_graph_info = grad_graph_info
        self._from_module, self.aux = from_module, aux
        self.called_graphs_grad_info = {} if called_graphs_grad_info is None else (
            called_graphs_grad_info
        )  # fmt: skip
        self.autodiff_applied = False

    @classmethod
    def from_grad_graph(
        cls, grad_graph_info: GradGraphInfo, args: NamedTensors | None = None
    ) -> "GraphWithNamedArgs":
        """The graph that autodiff made."""
        return cls(grad_graph_info.graph, args, grad_graph_info)

    @property
    def grad_graph_info(self) -> GradGraphInfo:
        """What autodiff said about this graph."""
        if self._grad_graph_info is None:
            raise AttributeError(f"{self.graph} is not a gradient graph: autodiff did not make it")
        return self._grad_graph_info

    @grad_graph_info.setter
    def grad_graph_info(self, grad_graph_info: GradGraphInfo) -> None:
        self._grad_graph_info = grad_graph_info

    def bind(self, args: NamedTensors | None = None) -> BoundGraph:
        """The graph with tensors of the caller for its named inputs, by name."""
        return BoundGraph(self.graph, to_mapping(self.args, args) if args else {})

    def call(self, *targs: object, args: TensorMap | None = None) -> tuple[popxl.Tensor, ...]:
        """Call the graph with inputs in order, and `args={input: tensor}` for others."""
        return self.bind().call(*targs, args=args)

    def call_with_info(self, *targs: object, args: TensorMap | None = None) -> CallSiteInfo:
        """Call the graph; the result says which tensor outside is which inside."""
        return self.bind().call_with_info(*targs, args=args)

    def autodiff(
        self,
        grads_provided: Tensors = None,
        grads_required: Tensors = None,
        called_graphs_grad_info: "Mapping[Any, GradGraphInfoLike] | None" = None,
        method: Method = "auto",
        force: bool = False,
    ) -> "GraphWithNamedArgs":
        """The gradient graph: what the module's `build_grad` makes, or autodiff.

        Differentiating changes the forward graph, which gets outputs, so that a second time is an
        error unless it is forced.
        """
        if method not in METHODS:
            raise ValueError(f"`method` must be one of {', '.join(METHODS)}, got {method!r}")
        if self.autodiff_applied and not force:
            raise RuntimeError(
                f"Autodiff has already been applied to {self.graph}, and changed its outputs."
                " Pass force=True to differentiate it again"
            )
        module = self._from_module
        if method != "autodiff" and module is not None and module.implements_grad_graph:
            gradient = module.create_grad_graph(self, grads_provided, grads_required)
        elif method == "build_grad":
            raise RuntimeError(
                f"{self.graph} has no gradient that it defines: method='build_grad' works where the"
                " module implements `build_grad` and `from_module` is specified"
            )
        else:
            known = {**infos_by_graph(called_graphs_grad_info), **self._known_infos()}
            info = popxl_autodiff(self.graph, grads_provided, grads_required, known)
            gradient = GraphWithNamedArgs.from_grad_graph(info)
        self.autodiff_applied = True
        return gradient

    def _known_infos(self) -> dict[popxl.Graph, GradGraphInfo]:
        return infos_by_graph(self.called_graphs_grad_info)

    def copy(self) -> "GraphWithNamedArgs":
        """This graph, with a copy of the names."""
        return GraphWithNamedArgs(self.graph, self.args.copy(), self._grad_graph_info)

    def print_schedule(self) -> str:
        """A text of the graph: its inputs with their names, and the operations in order."""
        numbers: dict[str, int] = {}

        def number(t: popxl.Tensor) -> str:
            return f"%{numbers.setdefault(t.id, len(numbers) + 1)}"

        def shown(tensors: Iterable[popxl.Tensor]) -> str:
            parts = (f"{number(t)} [{t.shape} {t.dtype.name}]" for t in tensors)
            return f"({', '.join(parts)})"

        name_of = {t: name for name, t in self.args.to_dict().items()}
        inputs = [
            f"{name_of[t]}={number(t)}" if t in name_of else number(t) for t in self.graph.inputs
        ]
        lines = []
        for i, op in enumerate(self.graph.ops):
            called = f"({', '.join(g.id for g in op.graphs)})" if op.graphs else ""
            lines.append(f"    {op.kind}.{i}{called} {shown(op.inputs)} -> {shown(op.outputs)}")
        outputs = ", ".join(number(t) for t in self.graph.outputs)
        head = f"Graph : {self.graph.name}\n  ({', '.join(inputs)}) -> ({outputs}) {{"
        return "\n".join([head, *lines, "  }"])

    def __repr__(self) -> str:
        return f"GraphWithNamedArgs({self.graph}, {self.args.keys_flat()})"


GraphLike = popxl.Graph | GraphWithNamedArgs | BoundGraph
GradGraphInfoLike = GradGraphInfo | GraphWithNamedArgs


def infos_by_graph(
    infos: Mapping[Any, GradGraphInfoLike] | None,
) -> dict[popxl.Graph, GradGraphInfo]:
    """What PopXL's autodiff takes: graphs and infos instead of objects that have them."""
    return {
        graph if isinstance(graph, popxl.Graph) else graph.graph: (
            info if isinstance(info, GradGraphInfo) else info.grad_graph_info
        )
        for graph, info in (infos or {}).items()
    }

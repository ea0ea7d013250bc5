"""What a module needs to give its gradient itself: saved tensors, gradients of its variables.

`build` saves tensors in `self.aux`, `build_grad` reads them there and puts gradients of variables
into `self.var_grad`. Both know whether `build_grad` is running.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import popxl
from popxl.transforms import ExpectedConnection, ExpectedConnectionType, GradGraphInfo
from tremula.base.errors import suggest
from tremula.frontends.popxl_addons.graphs.graph import (
    GradGraphInfoLike,
    GraphLike,
    infos_by_graph,
)
from tremula.frontends.popxl_addons.utils import OrderedDict

# Modules whose `build` or `build_grad` is running, the innermost last.
BUILDING: ContextVar[tuple[Any, ...]] = ContextVar("modules_being_built", default=())
DIFFERENTIATING: ContextVar[tuple[Any, ...]] = ContextVar("modules_differentiated", default=())
OUTSIDE = (
    "{what} within the `build_graph` method alone: `build_grad` of a module, called by"
    " `create_grad_graph` or `autodiff`"
)


class Aux:
    """Values that `build` saves for `build_grad`, where tensors become inputs of its graph."""

    def __init__(self) -> None:
        self._values: OrderedDict[str, Any] = OrderedDict()
        self._inputs: OrderedDict[str, popxl.Tensor] = OrderedDict()  # of the gradient graph

    def __setitem__(self, key: str, value: object) -> None:
        self._values[key] = value

    def __getitem__(self, key: str) -> Any:
        if not any(module.aux is self for module in DIFFERENTIATING.get()):
            raise RuntimeError(OUTSIDE.format(what="You can only get items"))
        value = self._values[key]
        if not isinstance(value, popxl.Tensor):
            return value
        if key not in self._inputs:
            self._inputs[key] = popxl.graph_input(
                value.shape, value.dtype, key, meta_shape=value.meta_shape
            )
        return self._inputs[key]

    def update(self, *args: object, **kwargs: object) -> None:
        """Save several values."""
        self._values.update(*args, **kwargs)

    @property
    def saved(self) -> list[popxl.Tensor]:
        """The tensors of the forward graph."""
        return [t for t in self._values.values() if isinstance(t, popxl.Tensor)]

    @property
    def used(self) -> list[popxl.Tensor]:
        """Tensors of the forward graph that `build_grad` read, in the order of their inputs."""
        return [self._values[key] for key in self._inputs]

    def copy(self) -> "Aux":
        new = Aux()
        new._values, new._inputs = self._values.copy(), self._inputs.copy()
        return new

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __repr__(self) -> str:
        return repr(self._values)


class VarGrads:
    """Gradients of a module's variables by their names, while `build_grad` runs."""

    def __init__(self, variables: Mapping[str, popxl.Tensor] | None = None):
        self._variables = variables
        self._grads: OrderedDict[str, popxl.Tensor] = OrderedDict()

    def _check_running(self) -> None:
        if not any(module.var_grad is self for module in DIFFERENTIATING.get()):
            raise RuntimeError(OUTSIDE.format(what="You can only use `var_grad`"))

    def __getitem__(self, key: str) -> popxl.Tensor:
        self._check_running()
        return self._grads[key]

    def __setitem__(self, key: str, tensor: popxl.Tensor) -> None:
        self._check_running()
        if not isinstance(tensor, popxl.Tensor):
            raise TypeError(f"Not a tensor: {tensor!r}")
        variables = self._variables or {}
        if key not in variables:
            raise KeyError(f"Not a variable: {key!r}. {suggest(key, variables)}")
        variable = variables[key]
        if (variable.shape, variable.meta_shape) != (tensor.shape, tensor.meta_shape):
            raise ValueError(
                "Shape or meta-shape of Tensor does not match variable."
                f" Expected {variable.shape} {variable.meta_shape} for {key!r},"
                f" got {tensor.shape} {tensor.meta_shape}"
            )
        self._grads[key] = tensor

    @property
    def grads(self) -> dict[str, popxl.Tensor]:
        return self._grads

    def __contains__(self, key: str) -> bool:
        return key in self._grads

    def __repr__(self) -> str:
        return repr(self._grads)


class CalledGradients:
    """Gradient graphs of the graphs that a module calls, and those of its parts."""

    def __init__(self) -> None:
        self._infos: dict[popxl.Graph, GradGraphInfo] = {}
        self._parts: list[CalledGradients] = []

    def add(self, fwd_graph: GraphLike, grad_graph: GradGraphInfoLike) -> None:
        """Say which graph is the gradient of another."""
        self._infos.update(infos_by_graph({fwd_graph: grad_graph}))

    def add_submap(self, infos: "CalledGradients | Mapping[GraphLike, GradGraphInfoLike]") -> None:
        """Include what a part of the module knows, now or later."""
        if not isinstance(infos, CalledGradients):
            part = CalledGradients()
            part._infos = infos_by_graph(infos)
            infos = part
        self._parts.append(infos)

    def consolidate(self) -> dict[popxl.Graph, GradGraphInfo]:
        """All of them; what the module itself says counts most."""
        result: dict[popxl.Graph, GradGraphInfo] = {}
        for part in self._parts:
            result.update(part.consolidate())
        return {**result, **self._infos}

    def clear(self) -> None:
        """Forget gradients of graphs; parts stay parts."""
        for part in self._parts:
            part.clear()
        self._infos = {}


def create_grad_graph_info(
    ir: popxl.Ir,
    fwd_graph: popxl.Graph,
    grad_graph: popxl.Graph,
    grad_input_to_fwd_output: Mapping[popxl.Tensor, popxl.Tensor],
    grad_output_to_fwd_input: Mapping[popxl.Tensor, popxl.Tensor],
    fwd_tensors: set[popxl.Tensor],
) -> GradGraphInfo:
    """How a gradient graph made by hand is connected to the forward graph.

    Inputs of the gradient graph are forward tensors if they are in `fwd_tensors`, else gradients
    by outputs; its outputs are gradients by inputs. Both mappings are in the order of the graph.
    """
    if fwd_graph.ir is not ir or grad_graph.ir is not ir:
        raise ValueError("The forward and the gradient graph must belong to the given Ir")
    kinds = ExpectedConnectionType
    inputs = [
        ExpectedConnection(kinds.Fwd if t in fwd_tensors else kinds.FwdGrad, t)
        for t in grad_input_to_fwd_output.values()
    ]
    outputs = [ExpectedConnection(kinds.FwdGrad, t) for t in grad_output_to_fwd_input.values()]
    return GradGraphInfo(grad_graph, fwd_graph, tuple(inputs), tuple(outputs))

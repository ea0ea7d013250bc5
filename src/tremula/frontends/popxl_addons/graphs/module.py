"""Modules with variables: `create_graph` returns factories of the variables, and a graph.

A module may give its gradient itself. `build` saves what that needs in `self.aux["name"]`, and
`build_grad(self, *gradients_of_outputs)` returns the gradients of its tensor arguments, in order;
those of its variables go to `self.var_grad["name"]`.
"""

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple, cast

import popxl
from tremula.base.context_values import pushed
from tremula.frontends.popxl_addons.graphs.cache import GraphCache, holds_tensors
from tremula.frontends.popxl_addons.graphs.graph import GraphWithNamedArgs, Method
from tremula.frontends.popxl_addons.graphs.own_gradients import (
    BUILDING,
    DIFFERENTIATING,
    Aux,
    CalledGradients,
    VarGrads,
    create_grad_graph_info,
)
from tremula.frontends.popxl_addons.named.dot_tree import (
    graft,
    insert_at_empty,
    remove_leaves,
)
from tremula.frontends.popxl_addons.named.factories import (
    Data,
    NamedVariableFactories,
    VariableFactory,
    add_replica_sharded_variable_input,
    add_variable_input,
)
from tremula.frontends.popxl_addons.named.tensors import NamedTensors
from tremula.frontends.popxl_addons.notes import notes_of
from tremula.frontends.popxl_addons.utils import duplicate_items, overrides

OnInlining = Literal["error", "warning", "none"]
Autodiff = Literal["auto", "build_grad", "autodiff", "none"]
Tensors = Iterable[popxl.Tensor] | None


class NameScopeMeta(type):
    """Makes `build` of a module put the module's name before the names of tensors it makes."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, object]) -> type:
        build = namespace.get("build")
        if callable(build):
            namespace = {**namespace, "build": _in_scope(build)}
        return super().__new__(cls, name, bases, namespace)


def _in_scope(build: Callable) -> Callable:
    @functools.wraps(build)
    def scoped(self: object, *args: object, **kwargs: object) -> object:
        scope = getattr(self, "_name_scope", None)
        if scope is None:
            return build(self, *args, **kwargs)
        with popxl.name_scope(scope):
            return build(self, *args, **kwargs)

    return scoped


class Module(popxl.Module, metaclass=NameScopeMeta):
    """A part of a model that has variables. It keeps nothing of a graph once that is made.

    Modules that are attributes of another are named by it: their variables are `attribute.name`.
    With `cache`, arguments of the same types give the same graph again. `grad_inlining_error` says
    what happens if a module that implements `build_grad` is called directly, where autodiff cannot
    use it.
    """

    def __init__(self, cache: bool = False, grad_inlining_error: OnInlining = "error"):
        self._variable_factories = NamedVariableFactories()
        self._named_inputs = NamedTensors()
        self._graph_cache = GraphCache() if cache else None
        self._made: dict[popxl.Graph, tuple[NamedVariableFactories, NamedTensors]] = {}
        self.aux = Aux()
        self.var_grad = VarGrads()
        self.grad_inlining_error = grad_inlining_error
        self.called_graphs_grad_info = CalledGradients()
        if cache and self.implements_grad_graph:
            raise ValueError("You cannot use graph caching if you have implemented `build_grad`.")
        if grad_inlining_error not in ("error", "warning", "none"):
            raise ValueError(
                "grad_inlining_error should be one of 'error', 'warning', 'none',"
                f" got {grad_inlining_error!r}"
            )

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Make operations, and variables by `add_variable_input`; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} has no `build`")

    def build_grad(self, *args: Any, **kwargs: Any) -> Any:
        """Make the gradient graph; subclasses may define it.

        Its arguments are gradients by outputs of `build`. It returns gradients by the tensor
        arguments of `build`, in order.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `build_grad`")

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if self.implements_grad_graph and self not in BUILDING.get()[-1:]:
            self._report_inlining()
        return super().__call__(*args, **kwargs)

    def _report_inlining(self) -> None:
        text = (
            f"You are calling {type(self).__name__} directly but `build_grad` has been implemented:"
            " autodiff would not use it. Make a graph of the module and call that, for example by"
            " `self.call_module(module)(x)`, or pass grad_inlining_error='none'"
        )
        if self.grad_inlining_error == "error":
            raise RuntimeError(text)
        if self.grad_inlining_error == "warning":
            warnings.warn(text, stacklevel=3)

    @property
    def implements_grad_graph(self) -> bool:
        """Whether the module defines `build_grad`."""
        return overrides(type(self), Module, "build_grad")

    # -- graphs --

    def create_graph(
        self, *args: object, **kwargs: object
    ) -> tuple[NamedVariableFactories, GraphWithNamedArgs]:
        """Factories of the module's variables, and its graph, with inputs of the same names."""
        self.aux = Aux()
        with pushed(BUILDING, self):
            graph = (self._graph_cache or popxl.gir()).create_graph(self, *args, **kwargs)
        if self._graph_cache is None or graph not in self._made:
            self._made[graph] = (self._variable_factories.copy(), self._named_inputs.copy())
        factories, inputs = self._made[graph]
        named = GraphWithNamedArgs(
            graph,
            inputs.copy(),
            from_module=self,
            aux=self.aux.copy(),
            called_graphs_grad_info=self.called_graphs_grad_info.consolidate(),
        )
        if self._graph_cache is None:
            del self._made[graph]
        if self.implements_grad_graph:
            graph.is_differentiable = False
            notes_of(graph.ir).setdefault("own_gradients", {})[graph] = named
        self._reset()
        return factories.copy(), named

    def _reset(self) -> None:
        """Clear what building a graph recorded; inner trees stay, as those of parts are shared."""
        remove_leaves(self._variable_factories)
        remove_leaves(self._named_inputs)
        self.called_graphs_grad_info.clear()
        self.aux, self.var_grad = Aux(), VarGrads()

    def create_grad_graph(
        self,
        fwd_graph: GraphWithNamedArgs,
        grads_provided: Tensors = None,
        grads_required: Tensors = None,
    ) -> GraphWithNamedArgs:
        """The gradient graph that `build_grad` makes for a graph of this module.

        Its inputs are gradients by `grads_provided` (by default all outputs) and what it reads from
        `aux`, which become outputs of the forward graph; its outputs are gradients by
        `grads_required` (by default all inputs).
        """
        if not self.implements_grad_graph:
            raise RuntimeError(f"{type(self).__name__} does not implement `build_grad`")
        _check_positional(self.build_grad)
        graph = fwd_graph.graph
        provided = _chosen("grads_provided", grads_provided, graph.outputs, "a output")
        required = _chosen("grads_required", grads_required, graph.inputs, "a input")
        assert isinstance(fwd_graph.aux, Aux), "a module made the graph"
        variables = fwd_graph.args.to_dict()
        plan = _Required.of(required, {t: name for name, t in variables.items()})
        self.var_grad, self.aux = VarGrads(variables), fwd_graph.aux.copy()
        with pushed(DIFFERENTIATING, self):
            own = graph.ir.create_graph(self.build_grad, *provided)
        _check_gradients(own, self.var_grad, plan)
        arguments = list(own.outputs)
        with own:
            for name in plan.variables:
                popxl.graph_output(self.var_grad.grads[name])
        with graph:
            for t in self.aux.saved:
                popxl.graph_output(t)
        info = create_grad_graph_info(
            graph.ir, graph, own,
            dict(zip(own.inputs, [*provided, *self.aux.used], strict=True)),
            dict(zip([*arguments, *(self.var_grad.grads[n] for n in plan.variables)],
                     [*plan.arguments, *plan.variables.values()], strict=True)),
            set(self.aux.used),
        )  # fmt: skip
        notes_of(graph.ir).setdefault("own_gradient_infos", {})[graph] = info
        self._reset()
        return GraphWithNamedArgs.from_grad_graph(info)

    # -- variables --

    def add_variable_factory(
        self, variable_f: VariableFactory, name: str | None = None
    ) -> popxl.Tensor:
        """An input for variables of a factory that exists already."""
        tensor = variable_f.create_input()
        self._add(name or variable_f.name or "t", variable_f, tensor)
        return tensor

    def add_variable_input(
        self,
        name: str,
        data_iter: Data,
        dtype: popxl.dtype | None = None,
        by_ref: bool = False,
        replica_grouping: popxl.ReplicaGrouping | None = None,
        overwrite: bool = False,
    ) -> popxl.Tensor:
        """An input for a variable of the module; its data comes when variables are made.

        `data_iter` is a function or an iterable. It yields the data of one variable after another,
        once for each group of replicas that differ.
        """
        tensor, factory = add_variable_input(name, data_iter, dtype, by_ref, replica_grouping)
        self._add(name, factory, tensor, overwrite)
        return tensor

    def add_replica_sharded_variable_input(
        self,
        name: str,
        data_iter: Data,
        dtype: popxl.dtype | None = None,
        by_ref: bool = False,
        replica_grouping: popxl.ReplicaGrouping | None = None,
        shard_over: int | None = None,
    ) -> popxl.Tensor:
        """An input for a variable of which each replica has a shard, which is the input."""
        tensor, factory = add_replica_sharded_variable_input(
            name, data_iter, dtype, by_ref, replica_grouping, shard_over
        )
        self._add(name, factory, tensor)
        return tensor

    def add_variable_inputs(
        self, name: str | int, variable_f: NamedVariableFactories, overwrite: bool = False
    ) -> NamedTensors:
        """Inputs for all variables of another module's graph, under a name of this one's."""
        if isinstance(name, int) and name < 0:
            raise ValueError(f"A number as a name must not be negative, got {name}")
        made = {key: factory.create_input() for key, factory in variable_f.to_dict().items()}
        tensors = NamedTensors.from_dict(made)
        self._add(str(name), variable_f.copy(), tensors, overwrite)
        return tensors.copy()

    def _add(self, name: str, factory: object, tensor: object, overwrite: bool = False) -> None:
        for tree, value in ((self._variable_factories, factory), (self._named_inputs, tensor)):
            insert_at_empty(tree, name, value, overwrite)

    # -- modules in modules --

    def set_name_scope(self, name: str) -> None:
        """The name before those of tensors that `build` makes."""
        object.__setattr__(self, "_name_scope", name)

    def __setattr__(self, key: str, value: object) -> None:
        if isinstance(value, Module):
            value.set_name_scope(key)
            # The trees of a part are branches of this module's: what it adds later is in both.
            graft(self._variable_factories, key, value._variable_factories)
            graft(self._named_inputs, key, value._named_inputs)
            self.called_graphs_grad_info.add_submap(value.called_graphs_grad_info)
        super().__setattr__(key, value)

    @classmethod
    def from_list(cls, sub_modules: "list[Module]") -> "Module":
        """A module whose parts are numbered; iterate over it, or index it."""
        made = cls()
        for i, module in enumerate(sub_modules):
            setattr(made, str(i), module)
        object.__setattr__(made, "_sub_modules", list(sub_modules))
        return made

    @classmethod
    def from_variable_factories(cls, inputs: list[VariableFactory]) -> "Module":
        """A module with numbered inputs for these factories."""
        made = cls()
        for i, factory in enumerate(inputs):
            setattr(made, str(i), made.add_variable_factory(factory, str(i)))
        return made

    def get(self, key: str | int) -> Any:
        """An attribute; numbers name the parts of a list."""
        return getattr(self, str(key))

    def __getitem__(self, item: str | int) -> Any:
        return self.get(item)

    def __iter__(self) -> "Iterator[Module]":
        parts = getattr(self, "_sub_modules", None)
        if parts is None:
            raise AttributeError(f"{type(self).__name__} was not made by Module.from_list")
        return iter(parts)

    def call_module(
        self,
        module: "Module",
        name: str | None = None,
        autodiff: Autodiff = "auto",
        grads_provided: Tensors = None,
        grads_required: Tensors = None,
    ) -> "CallModule":
        """A function that makes another module's graph and calls it, with variables of this one.

        `autodiff` says whether its gradient graph is made at once: "auto" if it implements
        `build_grad`, else by the method named, or not at all ("none"). The name is that of its
        class by default.
        """
        return CallModule(self, module, name, autodiff, grads_provided, grads_required)


class CallModule:
    """A call of a module through a graph."""

    def __init__(
        self,
        caller: Module,
        callee: Module,
        name: str | None,
        autodiff: Autodiff,
        grads_provided: Tensors,
        grads_required: Tensors,
    ):
        self.caller, self.callee, self.autodiff = caller, callee, autodiff
        self.name = name or type(callee).__name__
        self.grads_provided, self.grads_required = grads_provided, grads_required

    def __call__(self, *args: object, **kwargs: object) -> tuple[popxl.Tensor, ...]:
        factories, graph = self.callee.create_graph(*args, **kwargs)
        tensors = self.caller.add_variable_inputs(self.name, factories)
        gradients = self.caller.called_graphs_grad_info
        gradients.add_submap(graph.called_graphs_grad_info)
        n_outputs = len(graph.graph.outputs)  # differentiating adds some
        if self._is_differentiated:
            method = cast("Method", self.autodiff)
            gradients.add(
                graph, graph.autodiff(self.grads_provided, self.grads_required, method=method)
            )
        self.var_factories, self.graph = factories, graph
        inputs = [a for a in (*args, *kwargs.values()) if holds_tensors(a)]
        return graph.bind(tensors).call(*inputs)[:n_outputs]

    @property
    def _is_differentiated(self) -> bool:
        if self.autodiff == "auto":
            return self.callee.implements_grad_graph
        return self.autodiff != "none"


# -- gradients that modules give themselves --------------------------------------------------------


class _Required(NamedTuple):
    """Inputs that gradients are wanted for: arguments of `build` in order, variables by name."""

    arguments: list[popxl.Tensor]
    variables: dict[str, popxl.Tensor]

    @classmethod
    def of(cls, tensors: list[popxl.Tensor], name_of: dict[popxl.Tensor, str]) -> "_Required":
        return cls(
            [t for t in tensors if t not in name_of],
            {name_of[t]: t for t in tensors if t in name_of},
        )


def _check_positional(build_grad: Callable) -> None:
    for name, parameter in inspect.signature(build_grad).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            raise TypeError(
                "The `build_grad` method signature must only have a fixed number of positional"
                f" parameters as inputs. Not a positional parameter: {name}"
            )


def _chosen(
    argument: str, tensors: Tensors, default: tuple[popxl.Tensor, ...], what: str
) -> list[popxl.Tensor]:
    if tensors is None:
        return list(default)
    chosen = list(tensors)
    for t in chosen:
        if not isinstance(t, popxl.Tensor) or t not in default:
            raise ValueError(
                f"A Tensor specified in `{argument}` is not {what} of `fwd_graph`"
                f" or not a Tensor: {t!r}"
            )
    if duplicate_items(chosen):
        raise ValueError(
            f"A Tensor has been specified more than once in `{argument}`: {duplicate_items(chosen)}"
        )
    return chosen


def _check_gradients(own: popxl.Graph, grads: VarGrads, required: _Required) -> None:
    advice = "Choose the gradients by `grads_required` of autodiff if some are not wanted."
    missing = [name for name in required.variables if name not in grads]
    if missing:
        raise RuntimeError(
            f"Not all variable gradients have been specified in self.var_grad. {advice}"
            f" Missing: {', '.join(missing)}"
        )
    n_outputs, n_arguments = len(own.outputs), len(required.arguments)
    if n_outputs > n_arguments:
        raise RuntimeError(
            f"Too many outputs in the grad graph: expected {n_arguments}, got {n_outputs}. {advice}"
        )
    if n_outputs < n_arguments:
        raise RuntimeError(
            "Not all forward graph inputs have been specified as outputs in the grad graph:"
            f" expected {n_arguments}, got {n_outputs}. {advice}"
        )
    for i, (grad, t) in enumerate(zip(own.outputs, required.arguments, strict=True)):
        if (grad.shape, grad.meta_shape) != (t.shape, t.meta_shape):
            raise ValueError(
                f"Shape or meta-shape of output Tensor at position {i} does not match the"
                f" `grads_required` there: expected {t.shape} {t.meta_shape}, got {grad.shape}"
                f" {grad.meta_shape}"
            )

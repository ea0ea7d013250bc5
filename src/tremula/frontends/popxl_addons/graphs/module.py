"""Modules with variables: `create_graph` gives factories of the variables, and a graph.

A module may say its gradient itself. `build` keeps what that needs in `self.aux["name"]`, and
`build_grad(self, *gradients_of_outputs)` returns the gradients of its tensor arguments, in order;
those of its variables go to `self.var_grad["name"]`.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import popxl
from tremula.frontends.popxl_addons.graphs.cache import GraphCache
from tremula.frontends.popxl_addons.graphs.graph import GraphWithNamedArgs
from tremula.frontends.popxl_addons.named.factories import (
    Data,
    NamedVariableFactories,
    VariableFactory,
    add_replica_sharded_variable_input,
    add_variable_input,
)
from tremula.frontends.popxl_addons.named.tensors import NamedTensors
from tremula.frontends.popxl_addons.notes import notes_of


class Module(popxl.Module):
    """A part of a model that has variables. It keeps nothing of a graph once that is made.

    Modules that are attributes of another are named by it: their variables are `attribute.name`.
    With `cache`, arguments of the same types give the same graph again.
    """

    def __init__(self, cache: bool = False):
        self._factories = NamedVariableFactories()
        self._inputs = NamedTensors()
        self._cache = GraphCache() if cache else None
        self._made: dict[popxl.Graph, tuple[NamedVariableFactories, NamedTensors]] = {}
        self._parent: Module | None = None
        self._name = ""
        self.aux: dict[str, popxl.Tensor] = {}
        self.var_grad: dict[str, popxl.Tensor] = {}

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "build" in cls.__dict__:
            cls.build = _in_scope(cls.build)

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Make operations, and variables by `add_variable_input`; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} has no `build`")

    @property
    def has_own_gradient(self) -> bool:
        """Whether the module says its gradient itself."""
        return hasattr(self, "build_grad")

    def create_graph(
        self, *args: object, **kwargs: object
    ) -> tuple[NamedVariableFactories, GraphWithNamedArgs]:
        """Factories of the module's variables, and its graph, with inputs of the same names."""
        owner, self._parent = self._parent, None  # names are those of this module's own variables
        try:
            graph = self._graph_for(args, kwargs)
        finally:
            self._parent = owner
        factories, inputs = self._made[graph]
        return factories.copy(), GraphWithNamedArgs(graph, inputs.copy())

    def _graph_for(self, args: tuple, kwargs: dict[str, object]) -> popxl.Graph:
        outer = self._factories, self._inputs
        self._factories, self._inputs = NamedVariableFactories(), NamedTensors()
        try:
            maker = self._cache or popxl.gcg().ir
            graph = maker.create_graph(self, *args, **kwargs)
            self._made.setdefault(graph, (self._factories, self._inputs))
        finally:
            self._factories, self._inputs = outer
        if self.has_own_gradient:
            makers = notes_of(graph.ir).setdefault("own_gradients", {})
            makers.setdefault(graph, (self, dict(self.aux), self._made[graph][1]))
            self.aux.clear()
        return graph

    def call_module(
        self, module: "Module", name: str | None = None
    ) -> Callable[..., tuple[popxl.Tensor, ...]]:
        """A function that makes another module's graph and calls it, with variables of this one."""

        def call(*args: object, **kwargs: object) -> tuple[popxl.Tensor, ...]:
            factories, graph = module.create_graph(*args, **kwargs)
            bound = graph.bind(self.add_variable_inputs(name or module._name, factories))
            return bound.call(*(a for a in args if isinstance(a, popxl.Tensor)))

        return call

    # -- variables --

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

        `data_iter` is a function or an iterable. It gives the data of one variable after another,
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
        overwrite: bool = False,
    ) -> popxl.Tensor:
        """An input for a variable of which each replica has a shard, which is the input."""
        tensor, factory = add_replica_sharded_variable_input(
            name, data_iter, dtype, by_ref, replica_grouping, shard_over
        )
        self._add(name, factory, tensor, overwrite)
        return tensor

    def add_variable_factory(
        self, variable_f: VariableFactory, name: str | None = None
    ) -> popxl.Tensor:
        """An input for variables of a factory that is there already."""
        tensor = variable_f.create_input()
        self._add(name or variable_f.name or "t", variable_f, tensor)
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
        """Under this module's name in the module whose graph is being made."""
        if self._parent is not None:
            full = f"{self._name}.{name}" if self._name else name
            self._parent._add(full, factory, tensor, overwrite)
            return
        self._factories.insert(name, factory, overwrite)
        self._inputs.insert(name, tensor, overwrite)

    # -- modules in modules --

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, Module) and name != "_parent":
            value._name, value._parent = name, self
        super().__setattr__(name, value)

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

    def __getitem__(self, key: str | int) -> Any:
        return self.get(key)

    def __iter__(self) -> "Iterator[Module]":
        parts = getattr(self, "_sub_modules", None)
        if parts is None:
            raise TypeError(f"{type(self).__name__} was not made by Module.from_list")
        return iter(parts)


def _in_scope(build: Callable) -> Callable:
    """`build`, with the module's name before the names of tensors it makes."""

    @functools.wraps(build)
    def scoped(self: Module, *args: object, **kwargs: object) -> Any:
        if self._parent is None or not self._name:
            return build(self, *args, **kwargs)
        with popxl.name_scope(self._name):
            return build(self, *args, **kwargs)

    return scoped

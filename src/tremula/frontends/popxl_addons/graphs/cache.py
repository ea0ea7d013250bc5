"""Graphs made before, for the same function and arguments of the same types."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import popxl
from popxl import ops
from tremula.frontends.popxl.core.context import current_ipu, current_tile_set
from tremula.frontends.popxl_addons.graphs.graph import BoundGraph, GraphWithNamedArgs


def bound_arguments(fn: Callable, *args: object, **kwargs: object) -> Mapping[str, object]:
    """All arguments of a call by name, with defaults and the object of a method."""
    if not inspect.isroutine(fn) and not isinstance(fn, functools.partial):
        fn = fn.__call__
    if inspect.ismethod(fn):
        args = (fn.__self__, *args)
        fn = fn.__func__
    bound = inspect.signature(fn).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def tensor_hash(t: popxl.Tensor | popxl.TensorSpec) -> int:
    """Equal for tensors of the same shape and type."""
    return hash((t.shape, t.dtype, tuple(t.meta_shape or ())))


def argument_hash(arg: Any) -> int:
    """Equal for arguments that make the same graph: tensors count by shape and type."""
    if isinstance(arg, popxl.Tensor | popxl.TensorSpec):
        return tensor_hash(arg)
    if isinstance(arg, BoundGraph):
        return hash((arg.graph, argument_hash(arg.args)))
    if isinstance(arg, GraphWithNamedArgs):
        return hash(arg.graph)
    if isinstance(arg, Mapping):
        return hash(tuple((_key_hash(key), argument_hash(item)) for key, item in arg.items()))
    if isinstance(arg, list | tuple):
        return hash((len(arg), *map(argument_hash, arg)))
    return hash(arg)


def _key_hash(key: object) -> int:
    return tensor_hash(key) if isinstance(key, popxl.Tensor) else hash(key)


def get_function_hash(fn: Callable, *args: object, **kwargs: object) -> int:
    """Equal for calls that make the same graph: of one function, on one IPU and set of tiles."""
    arguments = bound_arguments(fn, *args, **kwargs)
    parts = [argument_hash(value) for value in arguments.values()]
    return hash((fn, current_ipu(), current_tile_set(), *parts))


class GraphCache:
    """Makes a graph once for each function and arguments; tensors count by shape and type."""

    def __init__(self) -> None:
        self._graphs: WeakKeyDictionary[popxl.Ir, dict[int, popxl.Graph]] = WeakKeyDictionary()

    def create_graph(
        self, fn: Callable | popxl.Module, *args: object, **kwargs: object
    ) -> popxl.Graph:
        """The graph of a function for these arguments: a new one, or one made before."""
        ir = popxl.gcg().ir
        graphs = self._graphs.setdefault(ir, {})
        key = get_function_hash(fn, *args, **kwargs)
        if key not in graphs:
            graphs[key] = ir.create_graph(fn, *args, **kwargs)
        return graphs[key]


def function(fn: Callable) -> Callable[..., tuple[popxl.Tensor, ...]]:
    """Call a function through a graph: made at its first call, and reused where types agree.

    @function
    def product(x, y):
        return x @ y
    """
    cache = GraphCache()

    @functools.wraps(fn)
    def call(*args: object, **kwargs: object) -> tuple[popxl.Tensor, ...]:
        graph = cache.create_graph(fn, *args, **kwargs)
        # Other arguments are part of the graph, tensors its inputs.
        tensors = [a for a in bound_arguments(fn, *args, **kwargs).values() if holds_tensors(a)]
        return ops.call(graph, *tensors)

    return call


def holds_tensors(value: object) -> bool:
    """Whether an argument is a tensor, or a list that begins with one."""
    is_list = isinstance(value, list | tuple)
    return isinstance(value[0] if is_list and value else value, popxl.Tensor)

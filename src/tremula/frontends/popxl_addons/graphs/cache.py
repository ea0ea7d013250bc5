"""Graphs that were made before, for the same function and the same types of arguments."""

from collections.abc import Callable, Hashable

import popxl


class GraphCache:
    """Makes a graph once for each function and types of its tensors; other arguments count too."""

    def __init__(self) -> None:
        self._graphs: dict[Hashable, popxl.Graph] = {}

    def create_graph(
        self, fn: Callable | popxl.Module, *args: object, **kwargs: object
    ) -> popxl.Graph:
        """The graph of a function for such arguments: a new one, or one made before."""
        ir = popxl.gcg().ir
        key = (ir, _key_of(fn), _key_of(args), _key_of(kwargs))
        if key not in self._graphs:
            self._graphs[key] = ir.create_graph(fn, *args, **kwargs)
        return self._graphs[key]


def _key_of(value: object) -> Hashable:
    if isinstance(value, popxl.Tensor):
        return ("tensor", value.shape, value.dtype, value.meta_shape)
    if isinstance(value, popxl.TensorSpec):
        return ("tensor", value.shape, value.dtype, tuple(value.meta_shape or ()))
    if isinstance(value, list | tuple):
        return (type(value), *map(_key_of, value))
    if isinstance(value, dict):
        return tuple((key, _key_of(item)) for key, item in value.items())
    return value if isinstance(value, Hashable) else id(value)

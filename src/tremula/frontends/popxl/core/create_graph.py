"""From a function or Module to a graph: which arguments become inputs, and under which names."""

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tremula.frontends.popxl.core.graph import Graph
from tremula.frontends.popxl.core.module import Module
from tremula.frontends.popxl.core.tensor import Tensor, TensorByRef, TensorSpec

_LIKE = Tensor | TensorSpec


def name_of(fn: Callable | Module) -> str:
    """The name of a graph: that of the function or class, with those around it."""
    owner = type(fn) if isinstance(fn, Module) else getattr(fn, "func", fn)
    name = getattr(owner, "__qualname__", type(fn).__qualname__)
    return name.replace(".<locals>", "")


def build_graph(
    graph: Graph, fn: Callable | Module, args: tuple, kwargs: Mapping[str, object]
) -> None:
    """Inputs for all tensors among the arguments, then what the function makes of them."""
    function = fn.build if isinstance(fn, Module) else fn
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        n_args = len(args) + len(kwargs)
        raise ValueError(
            f"{n_args} arguments do not match the signature of {name_of(fn)}: {error}"
        ) from error
    bound.apply_defaults()
    hints = _hints(function)
    with graph:
        for name, parameter in signature.parameters.items():
            value = bound.arguments[name]
            bound.arguments[name] = _as_input(graph, name, parameter, hints.get(name), value)
        outputs = function(*bound.args, **bound.kwargs)
        for t in _outputs(fn, outputs):
            graph.mark_as_output(t)


def _hints(function: Callable) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):  # names that only a type checker knows
        return dict(getattr(function, "__annotations__", {}))


def _as_input(
    graph: Graph, name: str, parameter: inspect.Parameter, hint: object, value: Any
) -> Any:
    by_ref = _is_by_ref(hint)
    if parameter.kind is parameter.VAR_KEYWORD:
        if not _all_tensors(name, list(value.values())):
            return value
        return {key: _input(graph, key, item, by_ref) for key, item in value.items()}
    if isinstance(value, _LIKE):
        return _input(graph, name, value, by_ref)
    if isinstance(value, list | tuple) and _all_tensors(name, list(value)):
        made = [_input(graph, f"{name}_{i}", item, by_ref) for i, item in enumerate(value)]
        return made if isinstance(value, list) else tuple(made)
    return value


def _all_tensors(name: str, values: list) -> bool:
    are = [isinstance(value, _LIKE) for value in values]
    if any(are) and not all(are):
        raise TypeError(
            f"Argument {name!r} mixes tensors and other values: a container that is passed to"
            " create_graph holds one or the other"
        )
    return bool(are) and are[0]


def _input(graph: Graph, name: str, like: Tensor | TensorSpec, by_ref: bool) -> Tensor:
    t = graph.new_tensor(name, like.shape, like.dtype, tuple(like.meta_shape))
    graph.mark_input(t, by_ref)
    return t


def _is_by_ref(hint: object) -> bool:
    return hint is TensorByRef or any(arg is TensorByRef for arg in typing.get_args(hint))


def _outputs(fn: Callable | Module, result: object) -> list[Tensor]:
    if result is None:
        return []
    if isinstance(result, Tensor):
        return [result]
    if not isinstance(result, Iterable):
        raise ValueError(_bad_output(fn, result))  # noqa: TRY004  as PopXL does
    outputs = list(result)
    for t in outputs:
        if not isinstance(t, Tensor):
            raise ValueError(_bad_output(fn, t))  # noqa: TRY004  as PopXL does
    return outputs


def _bad_output(fn: Callable | Module, got: object) -> str:
    return (
        f"{name_of(fn)} must return None, a Tensor or an iterable of Tensors,"
        f" got {got!r} of type {type(got).__name__}"
    )

"""Parameters of JAX's primitives that a `tile_map` leaves out: those that newer JAX versions added.

A program says `tile_map(sin_p, x)` or `tile_map(reshape_p, x, new_sizes=(3, 8))`, as JAX 0.3 took
them. What is left out has the value that the function of `jax.lax` gives it.
"""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax.lax import GatherScatterMode

Array = jax.Array | np.ndarray
Lowered = Sequence[mlir.ir.Value | Sequence[mlir.ir.Value]]  # what a lowering returns
Attributes = Mapping[str, Any]  # of a primitive, by their names: numbers, texts, types, shapes …
_IN_BOUNDS = GatherScatterMode.PROMISE_IN_BOUNDS
_INDEXED = {"indices_are_sorted": False, "unique_indices": False, "mode": _IN_BOUNDS}
_CUMULATIVE = {"axis": 0, "reverse": False}
_REDUCED = {"out_sharding": None}

DEFAULTS: Mapping[str, Mapping[str, object]] = {
    **{
        name: {"accuracy": None}
        for name in "cbrt cos exp exp2 expm1 log log1p logistic rsqrt sin sqrt tan tanh".split()
    },
    **dict.fromkeys("cumsum cumprod cummax cummin cumlogsumexp".split(), _CUMULATIVE),
    **{
        f"reduce_{name}": _REDUCED for name in "sum prod max min".split()
    },
    "argmax": {"index_dtype": np.dtype(np.int32)},
    "argmin": {"index_dtype": np.dtype(np.int32)},
    "broadcast_in_dim": {"sharding": None},
    "convert_element_type": {"weak_type": False, "sharding": None},
    "dot_general": {"precision": None, "preferred_element_type": None, "out_sharding": None},
    "gather": {**_INDEXED, "fill_value": None},
    "iota": {"dimension": 0, "sharding": None},
    "reshape": {"dimensions": None, "sharding": None},
    "round": {"rounding_method": lax.RoundingMethod.AWAY_FROM_ZERO},
    "slice": {"strides": None},
    "sort": {"is_stable": True, "num_keys": 1},
    "split": {"axis": 0},
    "top_k": {"is_stable": True} if "is_stable" in signature(lax.top_k).parameters else {},
}  # fmt: skip

# Their combining functions are parameters, which these make; programs pass None for them.
_SCATTERS: dict[str, Callable[..., Any]] = {
    "scatter": lax.scatter,
    "scatter-add": lax.scatter_add,
    "scatter-mul": lax.scatter_mul,
    "scatter-min": lax.scatter_min,
    "scatter-max": lax.scatter_max,
}
_LAST_AXIS = {"sort": "dimension", "top_k": "axis"}  # parameters whose default it is
_TYPES = {"new_dtype", "dtype", "preferred_element_type", "index_dtype"}


def bound(primitive: Primitive, *values: Array, **attributes: object) -> Any:
    """The results of a primitive of JAX, with the parameters that are left out filled in."""
    if primitive.name in _SCATTERS:
        options = {name: attributes.get(name, value) for name, value in _INDEXED.items()}
        dimensions = attributes["dimension_numbers"]
        return _SCATTERS[primitive.name](*values, dimensions, **options)
    defaults = dict(DEFAULTS.get(primitive.name, {}))
    values = tuple(jax.numpy.asarray(value) for value in values)
    if primitive.name in _LAST_AXIS:
        defaults[_LAST_AXIS[primitive.name]] = np.ndim(values[0]) - 1
    return primitive.bind(*values, **{**defaults, **attributes})


def canonical(attributes: Attributes) -> tuple[tuple[str, Any], ...]:
    """Attributes as a parameter of an equation: tuples for lists, NumPy's types, in one order."""
    return tuple(sorted((name, _value(name, value)) for name, value in attributes.items()))


def _value(name: str, value: object) -> object:
    if name in _TYPES and value is not None:
        return jax.dtypes.canonicalize_dtype(value)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return tuple(_value("", one) for one in value)
    return value

"""The primitives that programs with tiles are traced to, and what they are on other backends."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.core import trace_state_clean
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir

from tremula.frontends.jax.tessellate.parameters import Array, bound


class InconsistentTiles(ValueError, AssertionError):
    """Arrays and tiles that do not fit; TessellateIPU asserts some of it, and raises the rest."""


class NotTileSharded(TypeError, AssertionError):
    """An operand that is no array over tiles."""


_made: set[Primitive] = set()  # those that are functions of other operations


def make_primitive(name: str, function: Callable, *, multiple_results: bool = False) -> Primitive:
    """A primitive that JAX runs as a function of other operations."""
    primitive = Primitive(name)
    primitive.multiple_results = multiple_results
    adopt(primitive, function)
    return primitive


def adopt(primitive: Primitive, function: Callable) -> None:
    """Define a primitive as a function of other operations."""
    _made.add(primitive)
    primitive.def_impl(function)

    primitive.def_abstract_eval(partial(_shapes, function))
    mlir.register_lowering(primitive, mlir.lower_fun(function, primitive.multiple_results))


def _shapes(function: Callable, *avals: ShapedArray, **params: object) -> Any:
    result = jax.eval_shape(
        lambda *xs: function(*xs, **params),
        *(jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals),
    )
    return jax.tree_util.tree_map(lambda one: ShapedArray(one.shape, one.dtype), result)


def _sharded(x: Array, *, tiles: tuple[int, ...]) -> Array:
    check_rows(x, tiles)
    return x


def check_rows(x: Array | ShapedArray, tiles: Sequence[int]) -> None:
    """There is a row for each tile."""
    if np.shape(x)[:1] != (len(tiles),):
        raise InconsistentTiles(
            f"Inconsistent IPU sharded array shape '{np.shape(x)}' and number of tiles"
            f" {len(tiles)}: the first axis has a row for each tile."
        )


def _replicated(x: Array, *, tiles: tuple[int, ...]) -> Array:
    if isinstance(x, np.ndarray | np.generic):  # nothing is traced: it stays on the host
        return np.stack([x] * len(tiles))
    return jnp.broadcast_to(x[None], (len(tiles), *x.shape))


def _mapped(
    *rows: Array,
    mapped: Primitive,
    attributes: tuple,
    tiles: tuple,
    sync: bool,  # noqa: ARG001
) -> list[Array]:
    """What a tile computes for each row: `vmap` over tiles."""

    def one(*values: Array) -> list[Array]:
        result = defined(mapped, *values, **dict(attributes))
        return list(result) if isinstance(result, tuple | list) else [result]

    return jax.vmap(one, axis_size=len(tiles))(*rows)


def is_vertex(primitive: Primitive) -> bool:
    """Whether tiles run a codelet for it."""
    return hasattr(primitive, "vertex") or hasattr(primitive, "ipu_translation")


def defined(primitive: Primitive, *values: Array, **attributes: object) -> Any:
    """A primitive of JAX itself; of ours and of custom vertices, the function that defines them."""
    if is_vertex(primitive) or primitive in _made:
        return primitive.impl(*values, **attributes)
    return bound(primitive, *values, **attributes)


def put(primitive: Primitive, x: Array, tiles: tuple[int, ...]) -> Array:
    """Bind a primitive that places an array; one of NumPy stays one where nothing is traced."""
    if isinstance(x, np.ndarray) and trace_state_clean():
        return primitive.impl(x, tiles=tiles)
    return primitive.bind(x, tiles=tiles)


put_sharded_p = make_primitive("tile_put_sharded", _sharded)
put_replicated_p = make_primitive("tile_put_replicated", _replicated)
gather_p = make_primitive(
    "tile_gather",
    lambda x, *, indices, tiles, copy: x[jnp.asarray(indices)],  # noqa: ARG005
)
barrier_p = make_primitive(
    "tile_data_barrier",
    lambda *xs, tiles: list(xs),  # noqa: ARG005
    multiple_results=True,
)
cycle_count_p = make_primitive(
    "ipu_hw_cycle_count",
    lambda *xs, tiles: [*xs, jnp.zeros((len(tiles), 2), jnp.uint32)],
    multiple_results=True,
)
map_p = make_primitive("tile_map", _mapped, multiple_results=True)


@map_p.def_abstract_eval
def _mapped_shapes(
    *avals: ShapedArray, mapped: Primitive, tiles: tuple, **params: Any
) -> list[ShapedArray]:
    """A custom vertex says what its results are: it need not have an implementation in JAX."""
    if not is_vertex(mapped):
        return _shapes(_mapped, *avals, mapped=mapped, tiles=tiles, **params)
    rows = [ShapedArray(aval.shape[1:], aval.dtype) for aval in avals]
    vertex = getattr(mapped, "vertex", None)
    if vertex is not None:
        outputs = list(vertex.described(rows)[0].values())
        mapped.multiple_results = len(outputs) > 1
    else:
        translation = getattr(mapped, "ipu_translation")  # noqa: B009 - JAX knows no such attribute
        equation = translation(mapped, tiles, rows, dict(params["attributes"]))
        outputs = [info.shaped for info in equation.outputs_info]
    return [ShapedArray((len(tiles), *one.shape), one.dtype) for one in outputs]


def square_size(x: Array, name: str) -> int:
    """The number of rows of a square matrix."""
    shape = np.shape(x)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InconsistentTiles(f"{name} takes a square matrix, got an array of shape {shape}.")
    return shape[0]

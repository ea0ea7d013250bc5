"""Primitives that `tile_map` knows by name, and the functions that describe their vertices."""

from collections.abc import Callable
from copy import copy
from typing import Any

from jax._src.interpreters import batching
from jax.extend.core import Primitive
from jax.interpreters import ad

from tremula.base.errors import suggest
from tremula.frontends.jax.tessellate.equations import IpuTileMapEquation

Translation = Callable[..., IpuTileMapEquation]
_translated: dict[str, tuple[Primitive, Translation]] = {}


def register_ipu_tile_primitive(primitive: Primitive, translation: Translation) -> None:
    """Let `tile_map` run a primitive as the vertex that a function describes.

    The function gets the primitive, the tiles, what a tile holds of each operand (shapes and types)
    and the attributes of the call, and returns an `IpuTileMapEquation`.
    """
    if primitive.name in _translated:
        raise KeyError(f"The primitive '{primitive.name}' is already registered in TessellateIPU.")
    describe_primitive(primitive, translation)
    primitive.ipu_translation = translation  # pyright: ignore[reportAttributeAccessIssue]


def describe_primitive(primitive: Primitive, translation: Translation) -> None:
    """Enter a description that is only looked at: the compiler chooses vertices by itself."""
    _translated[primitive.name] = primitive, translation


def get_ipu_tile_primitive_translation(pname: str) -> tuple[Primitive, Translation]:
    """The primitive of a name and the function that describes its vertex."""
    if pname not in _translated:
        raise KeyError(f"no tile primitive {pname!r} is registered. {suggest(pname, _translated)}")
    return _translated[pname]


# -- what a primitive has --------------------------------------------------------------------------


def primitive_clone(p: Primitive, name: str) -> Primitive:
    """A primitive of another name, with the rules of the first for derivatives and `vmap`."""
    if name == p.name:
        raise ValueError(f"a copy of the primitive {name!r} needs another name.")
    clone = copy(p)
    clone.name = name
    for table in (ad.primitive_jvps, ad.primitive_transposes, _batchers()):
        if p in table:
            table[clone] = table[p]
    return clone


def primitive_has_impl(p: Primitive) -> bool:
    """Whether a primitive can be computed without being compiled."""
    is_missing = getattr(p.impl, "is_missing", False)
    return not is_missing and getattr(p.impl, "__func__", None) is not Primitive.impl


def primitive_has_batching(p: Primitive) -> bool:
    """Whether a primitive has a rule for `vmap`."""
    return p in _batchers()


def _batchers() -> Any:
    """JAX's rules for `vmap`: its public table can only be written."""
    return batching.fancy_primitive_batchers


def primitive_num_inout_alias_args(p: Primitive) -> int:
    """How many operands a primitive overwrites."""
    return getattr(p, "num_inout_alias_args", 0)

"""The table of primitives: an entry is a primitive of JAX and what it is in PyTorch.

    @rule("add", "add_any")
    def add(eqn: Equation, x: Tensor, y: Tensor) -> Tensor: ...

Operands come as they are held (`carriers`), parameters are in the equation. Files of `rules/` are
families; docs/jax-primitives.md is made from the table.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

from tremula.base.source import Source
from tremula.frontends.jax.carriers import Value

Result = Value | list[Value]


@dataclass(frozen=True)
class Equation:
    """A line of a jaxpr, apart from its operands."""

    name: str
    params: Mapping[str, Any]
    in_avals: tuple[Any, ...]
    out_avals: tuple[Any, ...]
    source: Source | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first result."""
        return tuple(self.out_avals[0].shape)

    @property
    def dtype(self) -> Any:  # noqa: ANN401
        """Of the first result, as JAX knows it."""
        return self.out_avals[0].dtype

    @property
    def in_dtype(self) -> Any:  # noqa: ANN401
        """Of the first operand, as JAX knows it."""
        return self.in_avals[0].dtype


@dataclass(frozen=True)
class Entry:
    """A primitive and its rule; `family` is the file that holds it."""

    name: str
    build: Callable[..., Result]
    family: str
    takes_numbers: bool  # a scalar that is known may come as a number of Python's


_entries: dict[str, Entry] = {}
_Rule = TypeVar("_Rule", bound=Callable[..., Result])


def rule(*names: str, takes_numbers: bool = False) -> Callable[[_Rule], _Rule]:
    """Enter a function as the rule of primitives."""

    def enter(build: _Rule) -> _Rule:
        for name in names:
            assert name not in _entries, f"two rules for {name}"
            family = build.__module__.rpartition(".")[2]
            _entries[name] = Entry(name, build, family, takes_numbers)
        return build

    return enter


@cache
def entries() -> Mapping[str, Entry]:
    """Every rule, by the name of its primitive."""
    rules = import_module("tremula.frontends.jax.rules")  # stands below; its files enter themselves
    for module in iter_modules(rules.__path__):
        import_module(f"{rules.__name__}.{module.name}")
    return _entries

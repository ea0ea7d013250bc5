"""The table of primitives: an entry is a primitive of JAX and what it is in PyTorch.

    @rule("add", "add_any")
    def add(eqn: Equation, x: Tensor, y: Tensor) -> Tensor: ...

Operands are tensors (`carriers`), parameters are in the equation. Files of `rules/` are
families; docs/jax-primitives.md is made from the table.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tremula.base.source import Source
from tremula.frontends.jax.carriers import Value
from tremula.frontends.shared.table import Table, by_family, markdown_table

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


_RULES: Table[str, Entry] = Table("tremula.frontends.jax.rules")
_Rule = TypeVar("_Rule", bound=Callable[..., Result])


def rule(*names: str, takes_numbers: bool = False) -> Callable[[_Rule], _Rule]:
    """Enter a function as the rule of primitives."""

    def enter(build: _Rule) -> _Rule:
        for name in names:
            _RULES.enter(name, Entry(name, build, _RULES.family_of(build), takes_numbers))
        return build

    return enter


def entries() -> Mapping[str, Entry]:
    """Every rule, by the name of its primitive."""
    return _RULES.rows()


_PAGE_HEAD = """# Primitives of JAX

What `tremula.jax.jit` translates. A primitive that is not here is an error: it names the primitive
and your line.
[jax.md](jax.md) says how a function of JAX becomes a program.

This page is made by `make docs`.

"""


def primitives_markdown() -> str:
    """The page docs/jax-primitives.md: all primitives by family."""
    families = by_family(entries().values(), lambda entry: entry.family)
    rows = [
        (family, " ".join(sorted(f"`{entry.name}`" for entry in rules)))
        for family, rules in families.items()
    ]
    table = markdown_table(("family", "primitives"), rows)
    return f"{_PAGE_HEAD}{table}\n{len(entries())} primitives.\n"

"""The table of operators: which versions of each there are, and the function that computes them.

An entry is a function of PyTorch tensors under a decorator. Operands come in ONNX's order, None for
one that is left out; attributes come by their ONNX names. When first asked, the table imports every
module of `tremula.frontends.onnx.operators`.
"""

import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import Any

NEWEST = 10_000  # of entries that no newer version replaces
_ROOM = "tremula.frontends.onnx.operators"


@dataclass(frozen=True)
class Operator:
    """An entry of the table."""

    domain: str  # "" is ai.onnx
    name: str
    since: int  # versions of the domain's operator set
    until: int
    compute: Callable[..., Any]
    static: tuple[str, ...] = ()  # operands whose values must be known when a model is compiled
    folds: bool = True  # computed at once if all operands are known
    decides: tuple[str, ...] = ()  # operands that say how often something is done

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.compute).parameters)

    @cached_property
    def takes_context(self) -> bool:
        return "context" in self.parameters

    @cached_property
    def attributes(self) -> frozenset[str]:
        """The attributes it knows; one that is a word of Python's, such as lambda, ends in _."""
        keyword = inspect.Parameter.KEYWORD_ONLY
        named = (n.removesuffix("_") for n, p in self.parameters.items() if p.kind is keyword)
        return frozenset(n for n in named if n != "context")

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The names of its operands; of a variadic one, those before the rest."""
        positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return tuple(n for n, p in self.parameters.items() if p.kind is positional)

    @cached_property
    def is_variadic(self) -> bool:
        kinds = [p.kind for p in self.parameters.values()]
        return inspect.Parameter.VAR_POSITIONAL in kinds

    @property
    def family(self) -> str:
        return self.compute.__module__.removeprefix(f"{_ROOM}.")

    @property
    def about(self) -> str:
        return (self.compute.__doc__ or "").strip().partition("\n")[0]


_entries: dict[tuple[str, str], list[Operator]] = {}


def operator(
    *names: str,
    since: int = 1,
    until: int = NEWEST,
    domain: str = "",
    static: tuple[str, ...] = (),
    folds: bool = True,
    decides: tuple[str, ...] = (),
) -> Callable[[Callable], Callable]:
    """Enter a function: @operator("Gemm", since=7), @operator("Reshape", static=("shape",))."""

    def enter(compute: Callable) -> Callable:
        for name in names:
            entry = Operator(domain, name, since, until, compute, static, folds, decides)
            others = _entries.setdefault((domain, name), [])
            if any(o.since <= until and since <= o.until for o in others):
                raise ValueError(f"{name} has two entries for one version")
            others.append(entry)
        return compute

    return enter


@cache
def _load() -> None:
    package = import_module(_ROOM)
    for module in pkgutil.walk_packages(package.__path__, f"{_ROOM}."):
        import_module(module.name)


def find_operator(domain: str, name: str, version: int) -> Operator | None:
    """The entry for a model that imports this version of the domain's operator set."""
    _load()
    entries = _entries.get((domain, name), ())
    return next((e for e in entries if e.since <= version <= e.until), None)


def all_operators() -> list[Operator]:
    """Every entry, by domain, name and version."""
    _load()
    flat = [entry for entries in _entries.values() for entry in entries]
    return sorted(flat, key=lambda e: (e.domain, e.name, e.since))

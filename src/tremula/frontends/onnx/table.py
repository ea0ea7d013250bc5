"""The table of ONNX operators: the versions of each, and the functions that compute them.

An entry is a function of PyTorch tensors under a decorator. Operands come in ONNX's order, None for
one that is left out; attributes are keyword-only parameters with their ONNX names. What else the
front ends need to know about an operator (its signature, whether it may overwrite its operand) is
read from the function or said by the decorator, so that an operator is one function in one file of
`tremula.frontends.onnx.operators`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar, get_args, get_origin

from tremula.frontends.shared.table import Table, summary

NEWEST = 10_000  # of entries that no newer version replaces
ML_DOMAIN, GRAPHCORE_DOMAIN = "ai.onnx.ml", "ai.graphcore"
UNLIMITED = 2**31 - 1  # operands or results of variadic operators
Role = Literal["", "norm", "activation"]
Compute = TypeVar("Compute", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Operator:
    """An entry of the table."""

    domain: str = ""  # "" is ai.onnx
    name: str
    since: int = 1  # versions of the domain's operator set
    until: int = NEWEST
    compute: Callable[..., Any]
    static: tuple[str, ...] = ()  # operands whose values must be known when a model is compiled
    folds: bool = True  # computed at once if all operands are known
    decides: tuple[str, ...] = ()  # operands that say how often something is done
    in_place: bool = False  # PopART overwrites the first operand where nothing else reads it
    role: Role = ""  # for PopART's recomputation of norms and the activations that follow them
    method: str = ""  # of PopART's builder, where it is not the name in lower case
    max_outputs: int = UNLIMITED  # of a function that returns a tuple of any length
    # Computes tensors without values, where `compute` would need values or take long. None for a
    # result whose shape is not known before a session is compiled.
    outline: Callable[..., Any] | None = None
    takes_any_attribute: bool = False  # a custom operation, which no schema describes

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.compute).parameters)

    @cached_property
    def takes_context(self) -> bool:
        return "context" in self.parameters

    @cached_property
    def attribute_parameters(self) -> dict[str, inspect.Parameter]:
        """Parameters of attributes by ONNX's names; one that is a keyword of Python's ends in _."""
        keyword = inspect.Parameter.KEYWORD_ONLY
        named = {n.removesuffix("_"): p for n, p in self.parameters.items() if p.kind is keyword}
        named.pop("context", None)
        return named

    @cached_property
    def attributes(self) -> frozenset[str]:
        """The names of the attributes that the entry knows."""
        return frozenset(self.attribute_parameters)

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
    def n_inputs(self) -> tuple[int, int]:
        """The least and the greatest number of operands."""
        n_required = sum(
            self.parameters[n].default is inspect.Parameter.empty for n in self.operands
        )
        return n_required, UNLIMITED if self.is_variadic else len(self.operands)

    @property
    def n_outputs(self) -> tuple[int, int]:
        """The least and the greatest number of results, from the function's annotation."""
        result = inspect.signature(self.compute).return_annotation
        if get_origin(result) is not tuple:
            return 1, 1
        parts = get_args(result)
        return (1, self.max_outputs) if Ellipsis in parts else (len(parts), len(parts))

    @property
    def family(self) -> str:
        return OPERATORS.family_of(self.compute)

    @property
    def about(self) -> str:
        return summary(self.compute)


# Versions by domain and name, the oldest entered first.
OPERATORS: Table[tuple[str, str], list[Operator]] = Table("tremula.frontends.onnx.operators")


def operator(*names: str, **properties: Any) -> Callable[[Compute], Compute]:  # noqa: ANN401
    """Enter a function: @operator("Gemm", since=7), @operator("Reshape", static=("shape",)).

    `properties` are fields of `Operator`.
    """

    def enter(compute: Compute) -> Compute:
        for name in names:
            entry = Operator(name=name, compute=compute, **properties)
            versions = OPERATORS.entered((entry.domain, name), list)
            if any(o.since <= entry.until and entry.since <= o.until for o in versions):
                raise ValueError(f"{name} has two entries for one version")
            versions.append(entry)
        return compute

    return enter


def find_operator(domain: str, name: str, version: int) -> Operator | None:
    """The entry for a model that imports this version of the domain's operator set."""
    entries = OPERATORS.rows().get((domain, name), ())
    return next((e for e in entries if e.since <= version <= e.until), None)


def newest_operator(domain: str, name: str) -> Operator | None:
    """The entry of the newest version, for what does not depend on the version."""
    entries = OPERATORS.rows().get(("" if domain == "ai.onnx" else domain, name), ())
    return max(entries, key=lambda entry: entry.since, default=None)


def all_operators() -> list[Operator]:
    """Every entry, by domain, name and version."""
    flat = [entry for entries in OPERATORS.rows().values() for entry in entries]
    return sorted(flat, key=lambda e: (e.domain, e.name, e.since))

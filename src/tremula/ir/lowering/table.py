"""The table of lowerings: which function turns an ATen operation into which poplibs calls."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from torch import fx

# The files that fill the table, one per family of operations.
_FAMILIES = (
    "pointwise.binary",
    "pointwise.unary",
    "pointwise.activations",
    "pointwise.special",
    "views",
    "strided",
    "create",
    "reductions",
    "nn.softmax",
    "linear.products",
    "linear.factors",
    "linear.convolutions",
    "nn.norms",
    "nn.pooling",
    "nn.resizing",
    "indexing.lookups",
    "indexing.updates",
    "indexing.sorting",
    "random",
    "nn.losses",
    "markers",
    "poptorch_ops",
    "nn.recurrent",
)


@dataclass(frozen=True)
class Lowering:
    """How one ATen overload becomes vertices."""

    name: str  # "aten::add.Tensor"
    build: Callable[..., Any]  # (tiles, *args, **kwargs) -> Tensor or tuple of tensors
    calls: str  # the poplibs functions it is made of, for the support page


@dataclass(frozen=True)
class LayoutPreference:
    """How an operation likes one of its operands to be laid out."""

    name: str
    argument: int
    create: Callable[..., Any]  # (tiles, node) -> Tensor of that argument's shape


_lowerings: dict[str, Lowering] = {}
_preferences: dict[tuple[str, int], LayoutPreference] = {}


def lowers(*names: str, calls: str) -> Callable[[Callable], Callable]:
    """Enter the function for ATen overloads: @lowers("add.Tensor", calls="popops.add")."""

    def enter(build: Callable) -> Callable:
        for short in names:
            name = short if "::" in short or short == "getitem" else f"aten::{short}"
            if name in _lowerings:
                raise ValueError(f"{name} has two lowerings")
            _lowerings[name] = Lowering(name, build, calls)
        return build

    return enter


def prefers_layout(name: str, argument: int) -> Callable[[Callable], Callable]:
    """Enter how `name` likes operand `argument`; used for weights and inputs of the model."""

    def enter(create: Callable) -> Callable:
        full = name if "::" in name else f"aten::{name}"
        _preferences[full, argument] = LayoutPreference(full, argument, create)
        return create

    return enter


@cache
def _load_families() -> None:
    for family in _FAMILIES:
        import_module(f"tremula.ir.lowering.{family}")


def overload_name(target: object) -> str:
    """'aten::add.Tensor'; the overload 'default' is left out: 'aten::mm'."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return str(getattr(target, "__name__", target))
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


def lowering_of(node: fx.Node) -> Lowering | None:
    _load_families()
    return _lowerings.get(overload_name(node.target))


def has_lowering(target: object) -> bool:
    _load_families()
    return overload_name(target) in _lowerings


def preference_of(node: fx.Node, argument: int) -> LayoutPreference | None:
    _load_families()
    return _preferences.get((overload_name(node.target), argument))


def all_lowerings() -> list[Lowering]:
    """Every entry, by name."""
    _load_families()
    return [_lowerings[name] for name in sorted(_lowerings)]

"""The table of operations: how each becomes vertices, and which are first written in simpler ones.

An entry is one function under a decorator, `@lowers` or `@decomposes`. When first asked, the table
imports every module of `tremula.ir.lowering` and `tremula.ir.decompositions`, so a new file there
needs no list to be in; a user's own module enters its functions when it is imported.
"""

import inspect
import pkgutil
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import fx

from tremula.ir.errors import UnsupportedOperations
from tremula.ir.nodes import overload_name, schema_name
from tremula.ir.origin import ORIGIN
from tremula.ir.step import CapturedStep

_ROOMS = ("tremula.ir.lowering", "tremula.ir.decompositions")
_BUILT_IN = "tremula::gradient"  # the builder of the program itself reduces gradients


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
_decompositions: dict[object, Callable] = {}  # by overload
_of_complex: dict[object, Callable] = {}  # by overload: the same for complex operands
_pytorchs: dict[object, Callable] = {}  # used where there is no decomposition of ours
_finders: list[Callable[[object], Callable | None]] = []  # of further ones, one by one


# -- entering --------------------------------------------------------------------------------------


def lowers(*names: str, calls: str) -> Callable[[Callable], Callable]:
    """Enter the function for ATen overloads: @lowers("add.Tensor", calls="popops.add")."""

    def enter(build: Callable) -> Callable:
        for short in names:
            name = _full_name(short)
            if name in _lowerings:
                raise ValueError(f"{name} has two lowerings")
            _lowerings[name] = Lowering(name, build, calls)
        return build

    return enter


def prefers_layout(name: str, argument: int) -> Callable[[Callable], Callable]:
    """Enter how `name` likes operand `argument`; used for weights and inputs of the model."""

    def enter(create: Callable) -> Callable:
        full = _full_name(name)
        _preferences[full, argument] = LayoutPreference(full, argument, create)
        return create

    return enter


def decomposes(*overloads: object) -> Callable[[Callable], Callable]:
    """Enter the function as the decomposition of ATen overloads: @decomposes(aten.addbmm.default).

    It takes what the overload takes and computes it with other operations of PyTorch.
    """

    def enter(function: Callable) -> Callable:
        for overload in overloads:
            if overload in _decompositions:
                raise ValueError(f"{overload_name(overload)} has two decompositions")
            _decompositions[overload] = function
        return function

    return enter


def decomposes_complex(*overloads: object) -> Callable[[Callable], Callable]:
    """Enter the function as what ATen overloads are for complex numbers, computed with real ones.

    It takes what the overload takes, with a `Pair` for a complex tensor, and gives pairs.
    """

    def enter(function: Callable) -> Callable:
        for overload in overloads:
            if overload in _of_complex:
                raise ValueError(f"{overload_name(overload)} has two rules for complex numbers")
            _of_complex[overload] = function
        return function

    return enter


def enter_pytorchs(decompositions: Mapping[Any, Callable]) -> None:
    """Enter PyTorch's own decompositions, for operations without another."""
    _pytorchs.update(decompositions)


def enter_finder(find: Callable[[object], Callable | None]) -> None:
    """Enter a function that looks for operations that are not in the table."""
    _finders.append(find)


def forget(*functions: Callable) -> None:
    """Take functions out of the table again, as a notebook does before it defines them again."""
    for name in [n for n, lowering in _lowerings.items() if lowering.build in functions]:
        del _lowerings[name]
    for key in [k for k, preference in _preferences.items() if preference.create in functions]:
        del _preferences[key]
    for overload in [o for o, function in _decompositions.items() if function in functions]:
        del _decompositions[overload]


def _full_name(short: str) -> str:
    return short if "::" in short or short == "getitem" else f"aten::{short}"


# -- asking ----------------------------------------------------------------------------------------


@cache
def _load() -> None:
    """Import all modules of the rooms: their decorators fill the table."""
    for room in _ROOMS:
        package = import_module(room)
        for module in pkgutil.walk_packages(package.__path__, f"{room}."):
            import_module(module.name)


def lowering_of(node: fx.Node) -> Lowering | None:
    _load()
    return _lowerings.get(overload_name(node.target))


def has_lowering(target: object) -> bool:
    _load()
    return overload_name(target) in _lowerings


def preference_of(node: fx.Node, argument: int) -> LayoutPreference | None:
    _load()
    return _preferences.get((overload_name(node.target), argument))


def decomposition_of(func: object) -> Callable | None:
    """The function that computes `func` with simpler operations, or None."""
    _load()
    result = _decompositions.get(func) or _pytorchs.get(func)
    if result is None:
        result = next(filter(None, (find(func) for find in _finders)), None)
    return result


def code_of_users() -> list[str]:
    """The text of entries from outside Tremula: a program compiled with them depends on it."""
    entered = [*(lowering.build for lowering in _lowerings.values()), *_decompositions.values()]
    entered += [preference.create for preference in _preferences.values()]
    outside = {f for f in entered if f.__module__.split(".")[0] not in ("tremula", "torch")}
    return sorted(map(_text_of, outside))


def _text_of(function: Callable) -> str:
    """The whole file, since a function may call others of it; or the code of one without a file."""
    try:
        return Path(inspect.getsourcefile(function) or "").read_text(encoding="utf-8")
    except (OSError, TypeError):
        code = function.__code__
        return f"{function.__name__} {code.co_code.hex()} {code.co_names} {code.co_consts}"


def complex_rule_of(func: object) -> Callable | None:
    """The function that computes `func` of complex numbers with real ones, or None."""
    _load()
    return _of_complex.get(func)


def all_lowerings() -> list[Lowering]:
    """Every entry, by name."""
    _load()
    return [_lowerings[name] for name in sorted(_lowerings)]


def all_decompositions() -> dict[str, Callable]:
    """Every decomposition that is not PyTorch's, by the name of its overload."""
    _load()
    return {overload_name(overload): function for overload, function in _decompositions.items()}


def all_complex_rules() -> dict[str, Callable]:
    """What each operation is for complex numbers, by the name of its overload."""
    _load()
    return {overload_name(overload): function for overload, function in _of_complex.items()}


def refuse_unsupported(step: CapturedStep) -> None:
    """One error that names every operation without a lowering, with module and line."""
    missing: dict[str, fx.Node] = {}
    for node in step.graph.nodes:
        is_call = node.op == "call_function" and schema_name(node) != _BUILT_IN
        if is_call and lowering_of(node) is None:
            missing.setdefault(overload_name(node.target), node)
    if not missing:
        return
    names = ", ".join(sorted(missing))
    lines = []
    for name, node in sorted(missing.items()):
        origin = node.meta.get(ORIGIN)
        where = f"{origin.module or 'the model'}, {origin.source}" if origin else "the model"
        lines.append(f"{name} in {where}")
    first = next(iter(missing.values())).meta.get(ORIGIN)
    raise UnsupportedOperations(
        f"Unsupported ops found in compiled model: [{names}]. Not all operations are supported yet"
        " by the tile program: " + "; ".join(lines),
        source=first.source if first else None,
        hint="write the model without them, or add a lowering (docs/adding-an-operation.md)",
    )


# -- the page docs/aten.md -------------------------------------------------------------------------

_HEAD = """# ATen on tiles

The operations of PyTorch that tile programs are made of, and the PopLibs calls that each becomes.
Others are first decomposed into these (`tremula.ir.passes.decompose`), by the decompositions listed
at the end or by PyTorch's own; one that cannot be is an error that names it, its module and its
line. [adding-an-operation.md](adding-an-operation.md) says how to add one.

This page is made by `make docs`.
"""


def aten_markdown() -> str:
    """All lowerings by the file they are in, then the decompositions."""
    families: dict[str, list[Lowering]] = defaultdict(list)
    for lowering in all_lowerings():
        families[lowering.build.__module__.rpartition(".")[2]].append(lowering)
    n_all = sum(len(own) for own in families.values())
    parts = [_HEAD, f"{n_all} overloads in {len(families)} families.\n"]
    for family in sorted(families):
        rows = [_row(lowering) for lowering in families[family]]
        title = family.replace("_", " ").capitalize()
        parts.append(_section(title, "becomes", rows))
    rows = [
        f"| `{name.removeprefix('aten::')}` | {_summary(function)} |"
        for name, function in sorted(all_decompositions().items())
    ]
    parts.append(_section("Decompositions", "is computed as", rows))
    parts.append(_complex_section())
    return "\n".join(parts)


def _complex_section() -> str:
    rows = [
        f"| `{name.removeprefix('aten::')}` | {_summary(function)} |"
        for name, function in sorted(all_complex_rules().items())
    ]
    return _section("Complex numbers", "of complex numbers is computed as", rows)


def _section(title: str, column: str, rows: list[str]) -> str:
    return "\n".join([f"## {title}", "", f"| operation | {column} |", "|---|---|", *rows, ""])


def _row(lowering: Lowering) -> str:
    return f"| `{lowering.name.removeprefix('aten::')}` | {lowering.calls or 'nothing: a view'} |"


def _summary(function: Callable) -> str:
    """The first line of its docstring, else the function's name."""
    lines = (function.__doc__ or "").strip().splitlines()
    return lines[0].replace("|", "\\|") if lines else f"`{function.__name__}`"

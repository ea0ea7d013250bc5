"""Explains calls with arguments of wrong types, after they have failed.

Public functions do not look at the type of every argument: that costs time, and whatever behaves
like a tensor is welcome. A call that fails inside with an AttributeError or the like is compared
with the function's annotations, and the argument that does not fit is named.
"""

import inspect
import numbers
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as AnySequence
from functools import wraps
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from tremula.base.errors import PoplarError, TypeMismatch
from tremula.base.source import user_source

P = ParamSpec("P")
R = TypeVar("R")
_CAUSES = (AttributeError, LookupError, AssertionError, OverflowError)
_NUMBERS: dict[type, type] = {int: numbers.Integral, float: numbers.Real, complex: numbers.Complex}
_PLAIN_NAMES = {"int": "a whole number", "float": "a number", "str": "a text"}


def explain_arguments_of(namespace: dict[str, Any], names: Iterable[str]) -> None:
    """Replace functions of a module by ones that explain wrong arguments."""
    for name in names:
        value = namespace.get(name)
        if inspect.isroutine(value):
            namespace[name] = explains_arguments(value)


def explain_arguments_of_methods(owner: type) -> None:
    """Replace public methods of a class by ones that explain wrong arguments."""
    for name, value in list(vars(owner).items()):
        if inspect.isfunction(value) and not name.startswith("_"):
            setattr(owner, name, explains_arguments(value))


def explains_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """The function; if it fails because an argument has a wrong type, the error says which."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except PoplarError:
            raise
        except _CAUSES as error:
            is_meant_for_users = isinstance(error, AssertionError) and error.args
            problem = "" if is_meant_for_users else wrong_argument(function, args, kwargs)
            if not problem:
                raise
            raise TypeMismatch(problem, source=user_source()) from error

    return call


def wrong_argument(
    function: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> str:
    """What is wrong with the first argument that does not fit its annotation; empty if all fit."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return ""  # a call without all arguments
    hints = _hints_of(function)
    for name, value in bound.arguments.items():
        if name in hints and not fits(value, hints[name]):
            shown = repr(value)
            shown = shown if len(shown) <= 40 else f"{shown[:37]}…"
            return (
                f"{function.__name__}: argument {name!r} must be {words_of(hints[name])}, "
                f"got {type(value).__name__} ({shown})."
            )
    return ""


def _hints_of(function: Callable[..., object]) -> dict[str, object]:
    """Annotations; those with names that only type checkers see stay text."""
    plain = inspect.unwrap(function)
    try:
        return typing.get_type_hints(plain, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return dict(getattr(plain, "__annotations__", {}))


def fits(value: object, hint: object) -> bool:
    """Whether a value is of an annotated type; true where that cannot be said."""
    if hint is None or hint is types.NoneType:
        return value is None
    if isinstance(hint, str):
        return not hint.isidentifier() or hint in [kind.__name__ for kind in type(value).__mro__]
    if isinstance(hint, type) and get_origin(hint) is None:
        return isinstance(value, (hint, _NUMBERS.get(hint, hint)))
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Annotated:
        return fits(value, parts[0])
    if not isinstance(origin, type):
        return value in parts if origin is Literal else True
    can_be_read_twice = origin is Iterable and hasattr(value, "__len__")
    is_of_elements = can_be_read_twice or origin in (tuple, list, AnySequence)
    if is_of_elements and isinstance(value, Iterable) and isinstance(value, origin):
        is_text = isinstance(value, str) and origin is not Iterable
        return not is_text and _all_fit(value, parts)
    return isinstance(value, origin)


def _all_fit(values: Iterable[object], parts: tuple[object, ...]) -> bool:
    """Whether elements fit: all the first part, or each its part of a tuple."""
    if len(parts) > 1 and Ellipsis not in parts:
        values = tuple(values)
        return len(values) == len(parts) and all(map(fits, values, parts))
    return not parts or all(fits(each, parts[0]) for each in values)


def words_of(hint: object) -> str:
    """An annotation in words: "a Tensor or a number"."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        words = [words_of(part) for part in parts if part is not types.NoneType]
        words += ["None"] if types.NoneType in parts else []
        return " or ".join(dict.fromkeys(words))
    if origin is Annotated:
        return words_of(parts[0])
    if origin is Literal:
        return " or ".join(repr(part) for part in parts)
    if origin in (tuple, list, AnySequence) and parts:
        return f"a sequence, each of which is {words_of(parts[0])}"
    name = hint.__name__ if isinstance(hint, type) else str(hint)
    article = "an" if name[0] in "AEIOaeio" else "a"
    return _PLAIN_NAMES.get(name, f"{article} {name}")

"""Nested settings with typed fields: what `IPUConfig` is made of.

A field is declared as a class attribute, `field(default, *types)`; a group of fields as an instance
of another node. Setting an unknown name or a value of another type is an error at the user's line.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn

from tremula.base.errors import suggest
from tremula.frontends.keras.errors import keras_error


@dataclass(frozen=True)
class ConfigField:
    """A setting: its default, the types that its values may have, what it means."""

    default: object
    types: tuple[type, ...]
    about: str

    def accepts(self, value: object) -> bool:
        if isinstance(value, bool) and bool not in self.types:
            return False
        return isinstance(value, self.types)

    def names_of_types(self) -> str:
        return " or ".join("None" if t is type(None) else t.__name__ for t in self.types)


def field(default: object, *types: type, about: str = "") -> Any:  # noqa: ANN401 - read as its value
    """Declare a setting; without types, values have that of the default."""
    return ConfigField(default, types or (type(default),), about)


@dataclass(frozen=True)
class AttributeMetadata:
    """What is known of a setting."""

    name: str
    types: tuple[type, ...]
    default: object
    about: str


class ConfigNode:
    """A group of settings."""

    _path: str

    def __init__(self, path: str = ""):
        self.__dict__["_path"] = path
        for name, member in self._members():
            if isinstance(member, ConfigField):
                self.__dict__[name] = copy.deepcopy(member.default)
            else:
                self.__dict__[name] = type(member)(f"{path}{name}.")

    @classmethod
    def _members(cls) -> Iterator[tuple[str, "ConfigField | ConfigNode"]]:
        for name in dir(cls):
            member = cls.__dict__.get(name)
            if isinstance(member, ConfigField | ConfigNode):
                yield name, member

    def __getattr__(self, name: str) -> NoReturn:  # called for missing names only
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._unknown(name)

    def __setattr__(self, name: str, value: object) -> None:
        member = dict(self._members()).get(name)
        if member is None:
            raise self._unknown(name)
        if isinstance(member, ConfigNode):
            raise keras_error(
                f"{self._path}{name} is a group of settings and cannot be replaced by {value!r}.",
                hint="set one of " + ", ".join(n for n, _ in member._members()),
            )
        if not member.accepts(value):
            raise keras_error(
                f"{self._path}{name} must be {member.names_of_types()}; got {value!r}, which is a"
                f" {type(value).__name__}.",
                hint=_hint_for(member),
            )
        self.__dict__[name] = value

    def _unknown(self, name: str) -> AttributeError:
        error = keras_error(
            f"{self._path.rstrip('.') or 'IPUConfig'} has no setting {name!r}.",
            hint=suggest(name, [n for n, _ in self._members()]),
        )
        return UnknownSetting(*error.args)

    # -- as plain values ---------------------------------------------------------------------------

    def to_dict(self) -> dict[str, object]:
        """Names of settings, with those of their groups, and values."""
        result: dict[str, object] = {}
        for name, member in self._members():
            value = self.__dict__[name]
            if isinstance(member, ConfigNode):
                result.update(value.to_dict())
            else:
                result[f"{self._path}{name}"] = value
        return result

    def _set_path(self, path: str, value: object) -> None:
        first, _, rest = path.partition(".")
        if rest:
            getattr(self, first)._set_path(rest, value)
        else:
            setattr(self, first, _read(value, dict(self._members()).get(first)))

    def _from_dict(self, values: Mapping[str, object]) -> None:
        for path, value in values.items():
            self._set_path(path, value)

    def to_json(self) -> str:
        """`to_dict` as text; choices by their names."""
        plain = {k: v.name if isinstance(v, Enum) else v for k, v in self.to_dict().items()}
        return json.dumps(plain)

    def get_attribute_metadata(self, path: str) -> AttributeMetadata:
        """What a setting is, by its full name."""
        first, _, rest = path.partition(".")
        member = dict(self._members()).get(first)
        if rest and isinstance(member, ConfigNode):
            return getattr(self, first).get_attribute_metadata(rest)
        if not isinstance(member, ConfigField):
            raise self._unknown(path)
        return AttributeMetadata(f"{self._path}{path}", member.types, member.default, member.about)


class UnknownSetting(AttributeError):
    """A name that `IPUConfig` does not have."""


def _hint_for(member: ConfigField) -> str:
    choices = [t for t in member.types if issubclass(t, Enum)]
    if choices:
        return "one of " + ", ".join(f"{choices[0].__name__}.{c.name}" for c in choices[0])
    return f"such as {member.default!r}"


def _read(value: object, member: object) -> object:
    """A value from JSON: names of choices become choices."""
    if not isinstance(member, ConfigField) or not isinstance(value, str):
        return value
    for kind in member.types:
        if issubclass(kind, Enum) and value in kind.__members__:
            return kind[value]
    return value

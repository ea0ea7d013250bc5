"""A tree of things by dotted names: `tree.layer.weight`, `tree["layer"]`, `tree[0]`."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from tremula.base.errors import suggest

Leaf = TypeVar("Leaf")
Other = TypeVar("Other")
Tree = TypeVar("Tree", bound="DotTree")
Key = str | int


def sanitise(name: str) -> str:
    """A name with `_` for everything that identifiers of Python do not have."""
    return re.sub(r"\W|^(?=\d)", "_", name)


class DotTree(Generic[Leaf]):
    """Leaves under dotted names.

    Parts of a name are identifiers or numbers. Numbers are found by `tree[0]`, and count from the
    end if negative.
    """

    def __init__(self, **entries: object):
        self._map: dict[str, Any] = {}
        for key, value in entries.items():
            self.insert(key, value)

    # -- finding --

    def get(self, key: Key) -> Any:
        """What has a name: a leaf, or the tree of what begins with it."""
        first, _, rest = self._name_of(key).partition(".")
        if first not in self._map:
            known = ", ".join(self._map) or "none"
            raise KeyError(f"No entry {first!r}: {suggest(first, self._map)} Available: {known}")
        result = self._map[first]
        return result.get(rest) if rest else result

    def __getitem__(self, key: Key) -> Any:
        return self.get(key)

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):  # of Python's protocols, such as copying
            raise AttributeError(key)
        try:
            return self.get(key)
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __contains__(self, key: Key) -> bool:
        try:
            self.get(key)
        except KeyError:
            return False
        return True

    def _name_of(self, key: Key) -> str:
        if isinstance(key, int) and key < 0:
            numbers = [int(name) for name in self._map if name.isnumeric()]
            key = max(numbers, default=-1) + 1 + key
            if key < 0:
                raise KeyError(f"There are only {len(numbers)} numbered entries")
        return str(key)

    # -- changing --

    def insert(self, key: Key, value: object, overwrite: bool = False) -> None:
        """Put a leaf, or a tree, under a name; a dotted one makes the trees on the way."""
        if isinstance(key, int) and key < 0:
            raise ValueError(f"A numbered entry cannot be negative, got {key}")
        first, _, rest = str(key).partition(".")
        if not first.isnumeric() and not first.isidentifier():
            raise ValueError(f"{first!r} is not a valid Python identifier")
        if rest:
            inner = self._map.get(first)
            inner = inner.copy() if isinstance(inner, DotTree) else type(self)()
            inner.insert(rest, value, overwrite)
            self._map[first] = inner
            return
        if first in self._map and not overwrite:
            raise ValueError(f"{first!r} already exists")
        if overwrite and isinstance(value, DotTree) and isinstance(self._map.get(first), DotTree):
            self._map[first].update(value, overwrite=True)
        else:
            self._map[first] = value

    def update(self, other: "DotTree[Leaf]", overwrite: bool = False) -> None:
        """Put everything of another tree into this one."""
        for key, value in other.to_dict().items():
            self.insert(key, value, overwrite)

    def pop(self, key: Key) -> Any:
        """Take an entry of the first level out."""
        self.get(key)
        return self._map.pop(self._name_of(key))

    def _clear(self) -> None:
        self._map.clear()

    # -- converting --

    def to_dict(self) -> dict[str, Leaf]:
        """All leaves by dotted names."""
        result: dict[str, Leaf] = {}
        for key, value in self._map.items():
            if isinstance(value, DotTree):
                result.update({f"{key}.{name}": leaf for name, leaf in value.to_dict().items()})
            else:
                result[key] = value
        return result

    @classmethod
    def from_dict(cls: type[Tree], leaves: Mapping[Any, Any]) -> Tree:
        """A tree from dotted names; leaves may be trees themselves."""
        tree = cls()
        for key, value in leaves.items():
            tree.insert(key, value)
        return tree

    def unpack(self) -> tuple[list[str], list[Leaf]]:
        """Names and leaves, sorted by name."""
        leaves = sorted(self.to_dict().items(), key=lambda item: item[0])
        return [name for name, _ in leaves], [leaf for _, leaf in leaves]

    @classmethod
    def pack(cls: type[Tree], keys: Iterable[Key], values: Iterable[Any]) -> Tree:
        """The tree of names and leaves."""
        return cls.from_dict(dict(zip(keys, values, strict=True)))

    def copy(self: Tree) -> Tree:
        """A copy of the tree with its leaves."""
        tree = type(self)()
        for key, value in self._map.items():
            tree._map[key] = value.copy() if isinstance(value, DotTree) else value
        return tree

    def map(self: Tree, function: Callable[[Any], Any]) -> Tree:
        """A tree with what a function makes of each leaf."""
        return self.from_dict({name: function(leaf) for name, leaf in self.to_dict().items()})

    def filter_keys(self: Tree, keys: Iterable[str]) -> Tree:
        """Only leaves with these names, in the order of this tree."""
        kept = set(keys)
        return self.from_dict({name: t for name, t in self.to_dict().items() if name in kept})

    def to_mapping(self, other: "DotTree[Other]") -> "dict[Leaf, Other]":
        """From leaves of this tree to those with the same names of another."""
        theirs = other.to_dict()
        return {leaf: theirs[name] for name, leaf in self.to_dict().items() if name in theirs}

    # -- looking --

    def keys(self) -> list[str]:
        return list(self._map)

    def values(self) -> list[Any]:
        return list(self._map.values())

    def keys_flat(self) -> list[str]:
        return list(self.to_dict())

    def values_flat(self) -> list[Leaf]:
        return list(self.to_dict().values())

    def len(self) -> int:
        return len(self._map)

    def len_flat(self) -> int:
        return len(self.to_dict())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.to_dict()})"


def to_mapping(keys: "DotTree[Leaf]", values: "DotTree[Other]") -> "dict[Leaf, Other]":
    """From leaves of one tree to leaves of another with the same names."""
    return keys.to_mapping(values)

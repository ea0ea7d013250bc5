"""A tree of values by dotted names: `tree.layer.weight`, `tree["layer"]`, `tree[0]`."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from tremula.base.errors import suggest
from tremula.frontends.popxl_addons.utils import OrderedDict, duplicate_items

Leaf = TypeVar("Leaf")
Other = TypeVar("Other")
Tree = TypeVar("Tree", bound="DotTree")
Key = str | int


def sanitise(name: str) -> str:
    """A name with `_` for everything that identifiers of Python do not have."""
    return re.sub(r"\W|^(?=\d)", "_", name)


class DotTree(Generic[Leaf]):
    """Leaves under dotted names.

    Parts of a name are identifiers or numbers. Numbers are read by `tree[0]`, and count from the
    end if negative.

    >>> DotTree.from_dict({"layer.weight": 1}).layer.weight
    1
    """

    def __init__(self, **kwargs: object):
        self._map: OrderedDict[str, Any] = OrderedDict()
        for key, value in kwargs.items():
            self.insert(key, value)

    # -- reading --

    def get(self, key: Key) -> Any:
        """What has a name: a leaf, or the tree of what begins with it."""
        first, _, rest = self._name_of(key).partition(".")
        if first not in self._map:
            known = ", ".join(self._map) or "none"
            raise KeyError(f"No entry {first!r}: {suggest(first, self._map)} Available: {known}")
        result = self._map[first]
        if not rest:
            return result
        if not isinstance(result, DotTree):
            raise KeyError(f"{first!r} is a leaf: it has no entry {rest!r}")
        return result.get(rest)

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
        """Put a leaf, or a tree, under a name; a dotted name makes the trees on the way.

        With `overwrite`, trees that exist are merged with what is inserted, and leaves replaced.
        Without it, a first part of the name that exists is an error.
        """
        if isinstance(key, int) and key < 0:
            raise ValueError(f"A numbered entry cannot be negative, got {key}")
        first, _, rest = str(key).partition(".")
        if not first.isnumeric() and not first.isidentifier():
            raise ValueError(f"{first!r} is not a valid Python identifier")
        existing = self._map.get(first)
        if first in self._map and not overwrite:
            raise ValueError(f"{first!r} already exists: pass overwrite=True to merge or replace")
        if rest:
            # A copy, so that an error leaves the tree as it was.
            inner = existing.copy() if isinstance(existing, DotTree) else type(self)()
            inner.insert(rest, value, overwrite)
            self._map[first] = inner
        elif isinstance(value, DotTree) and isinstance(existing, DotTree):
            existing.update(value, overwrite=True)
        else:
            self._map[first] = value

    def update(self, values: "DotTree[Leaf]", overwrite: bool = False) -> None:
        """Insert every entry of another tree's first level into this one."""
        for key, value in values.copy()._map.items():
            self.insert(key, value, overwrite)

    def pop(self, key: Key) -> Any:
        """Take an entry out, also one of an inner tree."""
        outer, _, last = self._name_of(key).rpartition(".")
        owner = self.get(outer) if outer else self
        result = owner.get(last)
        del owner._map[owner._name_of(last)]
        return result

    # -- converting --

    def to_dict(self) -> OrderedDict[str, Leaf]:
        """All leaves by dotted names."""
        result: OrderedDict[str, Leaf] = OrderedDict()
        for key, value in self._map.items():
            if isinstance(value, DotTree):
                result.update({f"{key}.{name}": leaf for name, leaf in value.to_dict().items()})
            else:
                result[key] = value
        return result

    @classmethod
    def from_dict(cls: type[Tree], d: Mapping[Any, Any]) -> Tree:
        """A tree from dotted names; leaves may be trees themselves."""
        tree = cls()
        for key, value in d.items():
            *outer, last = str(key).split(".")
            inner = tree
            for name in outer:
                if name not in inner:
                    inner.insert(name, cls())
                inner = inner.get(name)
            inner.insert(last, value)
        return tree

    def unpack(self) -> tuple[list[str], list[Leaf]]:
        """Names and leaves, sorted by name."""
        leaves = sorted(self.to_dict().items(), key=lambda item: item[0])
        return [name for name, _ in leaves], [leaf for _, leaf in leaves]

    @classmethod
    def pack(cls: type[Tree], keys: Iterable[Key], values: Iterable[Any]) -> Tree:
        """The tree of names and leaves."""
        return cls.from_dict(dict(zip(keys, values, strict=False)))

    def copy(self: Tree) -> Tree:
        """A copy of the tree with its leaves."""
        tree = type(self)()
        for key, value in self._map.items():
            tree._map[key] = value.copy() if isinstance(value, DotTree) else value
        return tree

    def map(self: Tree, fn: Callable[[Any], Any]) -> Tree:
        """A tree with what a function makes of each leaf."""
        return self.from_dict({name: fn(leaf) for name, leaf in self.to_dict().items()})

    def filter_keys(self: Tree, keys: Iterable[Key]) -> Tree:
        """A tree with these leaves and branches alone, in the order of the names."""
        names = list(keys)
        if duplicate_items(names):
            raise ValueError(f"Names must be different, got twice: {duplicate_items(names)}")
        tree = type(self)()
        for name in names:
            value = self.get(name)
            tree.insert(name, value.copy() if isinstance(value, DotTree) else value, overwrite=True)
        return tree

    def to_mapping(self, values: "DotTree[Other]") -> "dict[Leaf, Other]":
        """From leaves of this tree to those with the same names of another."""
        return to_mapping(self, values)

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
        return f"{type(self).__name__}({dict(self.to_dict())})"


def to_mapping(key: "DotTree[Leaf]", value: "DotTree[Other]") -> "dict[Leaf, Other]":
    """From leaves of one tree to leaves of another with the same names."""
    theirs = value.to_dict()
    return {leaf: theirs[name] for name, leaf in key.to_dict().items() if name in theirs}


# Functions, as every public name of a tree that has no underscore may be that of an entry.


def remove_leaves(tree: DotTree) -> None:
    """Inner trees stay, empty, as other trees may hold them too."""
    for key, value in list(tree._map.items()):
        if isinstance(value, DotTree):
            remove_leaves(value)
        else:
            del tree._map[key]


def graft(tree: DotTree, key: str, branch: DotTree) -> None:
    """Make another tree a branch of this one, in place of what has that name."""
    tree._map[key] = branch


def insert_at_empty(tree: DotTree, name: str, value: object, overwrite: bool) -> None:
    """Insert a leaf or a tree; the branch of that name may exist if it has no leaves."""
    branch = tree._map.get(name)
    if isinstance(value, DotTree) and isinstance(branch, DotTree) and not branch.len_flat():
        branch.update(value, overwrite=True)
    else:
        tree.insert(name, value, overwrite)

"""Ids of tensors: scopes before a name, a number behind it if it is taken in a scope in sight."""

from typing import Optional

DELIMITER = "/"


class IdMaker:
    """The ids of one graph; those of graphs around it and inside it are taken, too."""

    def __init__(self, parent: Optional["IdMaker"] = None):
        self.parent = parent
        self.children: list[IdMaker] = []
        self.taken: set[str] = set()
        self.scopes: list[str] = []
        if parent is not None:
            parent.children.append(self)

    def make(self, name: str, index: int | None = None) -> str:
        """A fresh id: `scope/name`, `:index` for the result of an operation, `/1` if it exists."""
        base = self.prefix() + name + ("" if index is None else f":{index}")
        result, number = base, 0
        while not self._is_free(result):
            number += 1
            result = f"{base}{DELIMITER}{number}"
        self.taken.add(result)
        return result

    def prefix(self) -> str:
        """The open scopes, each with the delimiter behind it."""
        return "".join(scope + DELIMITER for scope in self.scopes)

    def sees(self, id: str) -> bool:
        """Whether an operation of this graph can read a tensor."""
        return id in self.taken or (self.parent is not None and self.parent.sees(id))

    def seen(self) -> set[str]:
        return self.taken | (self.parent.seen() if self.parent is not None else set())

    def _is_free(self, id: str) -> bool:
        return not self.sees(id) and not self._is_inside(id)

    def _is_inside(self, id: str) -> bool:
        return any(id in child.taken or child._is_inside(id) for child in self.children)

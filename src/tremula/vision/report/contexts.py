"""Debug contexts: the tree of names, each with the line of the user's source it comes from."""


class Contexts:
    """Grows the tree: a name "encoder/layer1/matmul" has three parts, each a row."""

    def __init__(self) -> None:
        self.number_of: dict[str, int] = {}
        self.parent: list[int] = []
        self.name: list[str] = []
        self.layer: list[str] = []
        self.file: list[str] = []
        self.line: list[int] = []

    def add(self, path: str, source: str, layer: str) -> int:
        """The row of a name; its source is that of whoever came first."""
        known = self.number_of.get(path)
        if known is not None:
            return known
        above, _, name = path.rpartition("/")
        parent = self.add(above, source, layer) if above else -1
        file, _, line = source.rpartition(":")
        self.parent.append(parent)
        self.name.append(name)
        self.layer.append(layer)
        self.file.append(file if line.isdigit() else source)
        self.line.append(int(line) if line.isdigit() else 0)
        self.number_of[path] = len(self.parent) - 1
        return len(self.parent) - 1

    def columns(self) -> dict[str, list]:
        return {
            "id": list(range(len(self.parent))),
            "parent": self.parent,
            "name": self.name,
            "path": list(self.number_of),
            "layer": self.layer,
            "file": self.file,
            "line": self.line,
        }

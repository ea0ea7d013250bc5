"""The lines of a kernel while it is printed, and the names that it has given to values."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from torch import fx

from tremula.ir.host.graph_kernels import roles


@dataclass
class KernelText:
    """Lines before the loop over tiles, inside it and after it."""

    inputs: list[fx.Node]  # p0, p1, …
    tiles: dict[fx.Node, str] = field(default_factory=dict)  # names of computed and loaded rows
    ahead: dict[str, str] = field(default_factory=dict)  # name -> its load, one tile ahead
    before: list[str] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    shared: dict[object, str] = field(default_factory=dict)  # text or other key -> its name

    def pointer(self, node: fx.Node) -> str:
        """The parameter of a tensor that is read."""
        if node not in self.inputs:
            self.inputs.append(node)
        return f"p{self.inputs.index(node)}"

    def line(self, text: str) -> str:
        """A value that is computed for each tile; its name."""
        name = f"v{len(self.inside)}"
        self.inside.append(f"{name} = {text}")
        return name

    def line_once(self, key: object, make: Callable[[], str]) -> str:
        """A value that is computed for each tile where it is first needed; its name."""
        if key not in self.shared:
            self.shared[key] = self.line(make())
        return self.shared[key]

    def once(self, prefix: str, text: str) -> str:
        """A value that does not depend on the tile; its name."""
        if text not in self.shared:
            self.shared[text] = f"{prefix}{len(self.shared)}"
            self.before.append(f"{self.shared[text]} = {text}")
        return self.shared[text]

    def read_ahead(self, node: fx.Node, load: str) -> str:
        """One number per row, loaded while the tile before is computed; its name."""
        name = self.tiles[node] = f"a{len(self.ahead)}"
        self.ahead[name] = load
        return name

    def first_reads(self) -> list[str]:
        """The loads of the first tile, before the loop."""
        return [f"next_{name} = {load}" for name, load in self.ahead.items()]

    def next_reads(self, rows: str) -> list[str]:
        """What was read ahead becomes current, and the tile after is read; `rows` are its rows."""
        if not self.ahead:
            return []
        return [f"{name} = next_{name}" for name in self.ahead] + [rows, *self.first_reads()]

    def parameters(self, n_results: int) -> str:
        names = [f"p{i}" for i in range(len(self.inputs))]
        return ", ".join([*names, *(f"r{i}" for i in range(n_results))])


def indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def body(lines: Iterable[str]) -> str:
    """The lines of a function."""
    return "".join(f"{line}\n" for line in indented(lines))


def wide_offsets(n_rows: int, lib: str) -> str:
    """What follows numbers of rows: offsets into large tensors need 64 bits."""
    return f".to({lib}.int64)" if n_rows * roles.MAX_FEATURES >= 2**31 else ""


def no_padding(size: int, index: str) -> str:
    """The condition that an index is inside a dimension; empty if tiles are not larger than it."""
    return f"({index} < {size})" if roles.padded(size) != size else ""


def segment_index(role: roles.SegmentSum, index: str, n_segments: int, live: str, lib: str) -> str:
    """The segment that each row is added to, -1 for none."""
    exists = f"{live} & ({index} >= 0) & ({index} < {n_segments})"
    if role.skipped >= 0:
        exists += f" & ({index} != {role.skipped})"
    return f"{lib}.where({exists}, {index}, -1).to({lib}.int32)"


def wrapped(index: str, n: int, lib: str) -> str:
    """Negative indices count from the end."""
    return f"{lib}.where({index} < 0, {index} + {n}, {index})"

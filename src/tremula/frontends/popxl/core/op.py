"""An operation in a graph: which row of the table, on which tensors, where and after what."""

from typing import Any

from tremula.base.source import Source
from tremula.frontends.popxl.core.registry import AttributeDict, OperationRow
from tremula.frontends.popxl.core.tensor import Tensor

TRANSFERS = {"HostLoad", "HostStore", "RemoteLoad", "RemoteLoadInplace", "RemoteStore"}  # kinds


class Op:
    """A node: `row` computes `outputs` from `inputs`.

    `layout` says which inputs each operand of the row's function is: pairs of its name and a
    number, or a list of numbers. `graphs` are those that it calls.
    """

    __slots__ = (
        "after", "attributes", "graph", "graphs", "has_ipu", "id", "inputs", "ipu", "layout",
        "name", "outputs", "row", "site", "source", "stage", "tile_set",
    )  # fmt: skip

    def __init__(
        self,
        graph: Any,  # a Graph, whose module imports this one
        row: OperationRow,
        inputs: list[Tensor],
        layout: tuple,
        attributes: AttributeDict,
        graphs: tuple = (),
    ):
        self.graph, self.row, self.inputs, self.layout = graph, row, inputs, layout
        self.attributes, self.graphs = attributes, graphs
        self.id = 0  # its number among all operations of the Ir, once it is in a graph
        self.outputs: list[Tensor] = []
        self.ipu, self.tile_set, self.name = 0, "compute", row.kind
        self.has_ipu = True  # False: the program leaves its chip open, and it runs on the first
        self.stage: int | None = None  # of a pipeline
        self.after: list[Op] = []  # operations that must have run, besides those of its operands
        self.source: Source | None = None
        self.site: Any = None  # how inputs and outputs of a called graph are bound

    @property
    def kind(self) -> str:
        return self.row.kind

    def arguments(self, values: list[Any]) -> dict[str, Any]:
        """Arguments of the row's function, given a value for each input."""
        result = dict(self.attributes)
        for name, place in self.layout:
            is_list = isinstance(place, list)
            result[name] = [values[i] for i in place] if is_list else values[place]
        return result

    def compute(self, values: list[Any]) -> Any:
        """The row's function, with a value for each input."""
        assert self.row.compute is not None, f"{self.kind} is not computed by a function"
        arguments = self.arguments(values)
        starred = self.row.starred
        if starred:
            return self.row.compute(*arguments.pop(starred), **arguments)
        return self.row.compute(**arguments)

    def operand(self, name: str) -> Any:
        """The tensor or tensors that an operand is, or None."""
        place = dict(self.layout).get(name)
        if isinstance(place, list):
            return [self.inputs[i] for i in place]
        return None if place is None else self.inputs[place]

    def modified(self) -> set[int]:
        """The inputs that it writes, for operations that are a row's function."""
        places = dict(self.layout)
        named = (places.get(m) if isinstance(m, str) else m for m in self.row.modifies)
        return {i for i in named if i is not None}

    def modifiesIndex(self, index: int) -> bool:
        """Whether an input is written, by PopART's numbers of inputs.

        PopART's loops have the count and a condition before their inputs.
        """
        number = index - 2 if self.kind == "Loop" else index
        return 0 <= number < len(self.inputs) and self.writes(number)

    def writes(self, index: int) -> bool:
        """Whether an input is written."""
        graphs = self.graphs
        if self.kind in {"Call", "Loop"}:
            is_by_ref = graphs[0].inputs[index] in graphs[0].by_ref_inputs
            return is_by_ref or index in self.attributes["modified"]
        return index in self.modified()

    def replace_input(self, old: Tensor, new: Tensor) -> None:
        self.inputs = [new if t is old or t == old else t for t in self.inputs]

    def __repr__(self) -> str:
        inputs = ", ".join(t.id for t in self.inputs)
        return f"{', '.join(t.id for t in self.outputs)} = {self.kind}({inputs})"

"""Compute sets and references to their vertices and fields."""

from dataclasses import dataclass
from typing import Any

from tremula.base.errors import GraphConnectionError
from tremula.base.source import Source, user_source
from tremula.codelets.spec import Codelet, FieldKind
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.variables import VariableTable
from tremula.poplar.vertices.columns import FrozenTable
from tremula.poplar.vertices.edge_log import EdgeLog, require_size
from tremula.poplar.vertices.table import VertexTableBuilder
from tremula.poplar.vertices.template import ComputeSetTemplate


@dataclass(frozen=True, slots=True)
class TemplateInstance:
    """What a compute set can be in place of tables: a template over its own variables."""

    template: ComputeSetTemplate
    variables: tuple[int, ...]
    table: VariableTable


class ComputeSet:
    """Vertices that run in parallel, with no order between them."""

    __slots__ = ("instance", "name", "source", "tables")

    def __init__(self, name: str, source: Source, instance: TemplateInstance | None = None):
        self.name, self.source, self.instance = name, source, instance
        # Keyed by what add_vertex was called with (name or class), so that a lookup is one step.
        # An instance of a template gets tables only when it is changed.
        if instance is None:
            self.tables: dict[Any, VertexTableBuilder] = {}

    def __getattr__(self, name: str) -> object:
        if name != "tables":
            raise AttributeError(name)
        frozen, self.instance = self.frozen_tables(), None
        self.tables = dict(enumerate(VertexTableBuilder.thawed(t, self.name) for t in frozen))
        return self.tables

    def frozen_tables(self) -> tuple[FrozenTable, ...]:
        """All vertices as columns."""
        if self.instance is None:
            return tuple(table.freeze() for table in self.distinct_tables())
        of = self.instance
        return of.template.tables_over(of.table, of.variables, self.source)

    def use_template(self, instance: TemplateInstance) -> None:
        """Forget the tables: the instance says the same."""
        self.instance = instance
        del self.tables

    @property
    def n_vertices(self) -> int:
        """Vertices of all codelets in it."""
        if self.instance is not None:
            return self.instance.template.n_vertices
        return sum(table.n_rows for table in self.distinct_tables())

    def table_of(self, codelet: Codelet, key: "str | type") -> VertexTableBuilder:
        """The vertex table of a codelet, made on first use."""
        for table in self.tables.values():
            if table.codelet is codelet:
                self.tables[key] = table
                return table
        table = self.tables[key] = VertexTableBuilder(codelet, self.name)
        return table

    def distinct_tables(self) -> list[VertexTableBuilder]:
        """Its tables, or those of the template it is an instance of."""
        return list({id(t): t for t in self.tables.values()}.values())

    def __repr__(self) -> str:
        return f"ComputeSet({self.name!r}, {self.n_vertices} vertices)"


class VertexRef:
    """A row of a vertex table; `vertex["field"]` refers to a field."""

    __slots__ = ("row", "table")

    def __init__(self, table: VertexTableBuilder, row: int):
        self.table, self.row = table, row

    def __getitem__(self, name: str) -> "FieldRef":
        self.table.field(name)
        return FieldRef(self, name)


class FieldRef:
    """A field of a vertex, or with an index one sub-vector of a list field."""

    __slots__ = ("index", "name", "vertex")

    def __init__(self, vertex: VertexRef, name: str, index: int | None = None):
        self.vertex, self.name, self.index = vertex, name, index

    def __getitem__(self, index: int) -> "FieldRef":
        return FieldRef(self.vertex, self.name, index)

    def edge_log(self) -> EdgeLog:
        """The log that records connections of this field."""
        edge = self.vertex.table.edges.get(self.name)
        if edge is None or edge.spec.kind not in (FieldKind.VECTOR_LIST, FieldKind.SCALAR_LIST):
            spec = self.vertex.table.field(self.name)
            raise GraphConnectionError(
                f"field {self.vertex.table.codelet.spec.name}.{self.name} is a {spec.kind.value} "
                "and has no elements to connect.",
                source=user_source(),
                hint="connect the whole field",
            )
        return edge

    def connect(self, value: object) -> None:
        """Connect the field to a tensor."""
        if self.index is None:
            self.vertex.table.connect(self.vertex.row, self.name, value)
            return
        edge = self.edge_log()
        size = edge.declared_sizes.get(self.vertex.row)
        if size is None:
            raise require_size(edge.spec, self.vertex.table.codelet.spec.name)
        if not 0 <= self.index < size or not isinstance(value, Tensor):
            raise GraphConnectionError(
                f"cannot connect {type(value).__name__} to element {self.index} of a field of size "
                f"{size}.",
                source=user_source(),
                hint=f"connect a Tensor to an element from 0 to {size - 1}",
            )
        edge.connect_element(self.vertex.row, value, self.index)

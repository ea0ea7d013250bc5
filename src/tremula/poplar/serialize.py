"""A graph as data: variables, where they are mapped, compute sets and their vertices.

It describes a graph for other tools, as JSON. It cannot be read back: codelets are code. What a
graph compiles to can be: `Executable.serialize`.
"""

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import IO, Any

import numpy as np

from tremula.poplar.target import Target
from tremula.poplar.tensors.tensor import Tensor, variable_tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.tensors.variables import VariableTable
from tremula.poplar.vertices.columns import FrozenTable
from tremula.poplar.vertices.compute_set import ComputeSet


class SerializationFormat(Enum):
    """How `Graph.serialize` writes: text, or the same deflated."""

    Binary = "Binary"
    JSON = "JSON"


@dataclass(frozen=True)
class GraphContents:
    """What a graph consists of."""

    target: Target
    replication_factor: int
    variables: VariableTable
    compute_sets: Sequence[ComputeSet]
    mapping_of: Callable[[Tensor], TileMapping]

    def write(self, out: IO[Any], format: SerializationFormat) -> None:
        """Write a description to a stream of bytes or, as JSON, of text."""
        text = json.dumps(self.described())
        if SerializationFormat(format) is SerializationFormat.Binary:
            out.write(zlib.compress(text.encode()))
            return
        try:
            out.write(text)
        except TypeError:  # a stream of bytes
            out.write(text.encode())

    def described(self) -> dict[str, object]:
        """The graph as plain values."""
        target = self.target
        return {
            "target": {
                "arch": target.arch,
                "n_ipus": target.n_ipus,
                "tiles_per_ipu": target.tiles_per_ipu,
            },
            "replication_factor": self.replication_factor,
            "variables": [self._variable(variable) for variable in range(len(self.variables))],
            "compute_sets": [
                {"name": each.name, "vertices": [_table(t) for t in each.frozen_tables()]}
                for each in self.compute_sets
            ],
        }

    def _variable(self, variable: int) -> dict[str, object]:
        table = self.variables
        mapping = self.mapping_of(variable_tensor(table, variable))
        columns = (mapping.tile, mapping.begin, mapping.end)
        return {
            "name": table.names[variable],
            "type": table.types[variable].spelling,
            "shape": list(table.shapes[variable]),
            "is_constant": table.is_constant[variable],
            "first_byte": table.base_bytes[variable],
            "mapping": np.stack(columns, 1).tolist(),  # tile, first element, end
        }


def _table(table: FrozenTable) -> dict[str, object]:
    """Vertices of one codelet: the tile of each, and the elements of its fields."""
    fields = {
        name: {
            "n_elements": edge.row_lengths().tolist(),
            "element_runs": np.stack(
                (edge.row_of_run(), edge.runs.start, edge.runs.count, edge.runs.stride), 1
            ).tolist(),  # vertex, first element address, elements, stride
        }
        for name, edge in table.edges.items()
    }
    return {"codelet": table.codelet.spec.name, "tile": table.tile.tolist(), "fields": fields}

"""A graph as data: variables, where they are mapped, compute sets and their vertices.

It describes a graph for other tools, as JSON. It cannot be read back: codelets are code. What a
graph compiles to can be: `Executable.serialize`.
"""

import json
import zlib
from enum import Enum
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from tremula.poplar.tensors.tensor import variable_tensor
from tremula.poplar.vertices.columns import FrozenTable

if TYPE_CHECKING:
    from tremula.poplar.graph import Graph


class SerializationFormat(Enum):
    """How `Graph.serialize` writes: text, or the same deflated."""

    Binary = "Binary"
    JSON = "JSON"


def serialize_graph(graph: "Graph", out: IO[Any], format: SerializationFormat) -> None:
    """Write a description of a graph to a stream, of text or bytes."""
    text = json.dumps(described(graph))
    if SerializationFormat(format) is SerializationFormat.Binary:
        out.write(zlib.compress(text.encode()))
        return
    try:
        out.write(text)
    except TypeError:  # a stream of bytes
        out.write(text.encode())


def described(graph: "Graph") -> dict[str, object]:
    """A graph as plain values."""
    target, state = graph.target, graph.state
    return {
        "target": {
            "arch": target.arch,
            "n_ipus": target.n_ipus,
            "tiles_per_ipu": target.tiles_per_ipu,
        },
        "replication_factor": graph.replication_factor,
        "variables": [_variable(graph, variable) for variable in range(len(state.variables))],
        "compute_sets": [
            {"name": compute_set.name, "vertices": list(map(_table, compute_set.frozen_tables()))}
            for compute_set in state.compute_sets
        ],
    }


def _variable(graph: "Graph", variable: int) -> dict[str, object]:
    table = graph.state.variables
    tensor = variable_tensor(table, variable)
    mapping = graph.get_tile_mapping(tensor, require_complete=False)
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
    """Vertices of one codelet: a tile and the lengths of its fields for each."""
    return {
        "codelet": table.codelet.spec.name,
        "tile": table.tile.tolist(),
        "fields": {
            name: {
                "n_elements": edge.row_lengths().tolist(),
                "first_element": edge.runs.start[edge.run_start[edge.sub_start[:-1]]].tolist()
                if len(edge.runs.start)
                else [],
            }
            for name, edge in table.edges.items()
        },
    }

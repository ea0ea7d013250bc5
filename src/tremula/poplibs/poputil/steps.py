"""Steps of a program that run the vertices of one codelet."""

from collections.abc import Mapping

import numpy as np

from tremula.poplar.graph import Graph
from tremula.poplar.programs import Execute, Sequence


def run_vertices(
    graph: Graph,
    codelet: type,
    fields: Mapping[str, object],
    tiles: np.ndarray,
    sequence: Sequence,
    name: str,
) -> None:
    """Append a compute set with a vertex on each of `tiles`; `fields` are its columns."""
    compute_set = graph.add_compute_set(name)
    graph.add_vertices(compute_set, codelet, fields, tiles=tiles)
    sequence.add(Execute(compute_set))

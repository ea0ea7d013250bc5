"""Shared by the compiler's tests: small machines, and a vertex that only has edges."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tremula.base.types import float32
from tremula.codelets import InOut, Input, Output, Vector, Vertex
from tremula.compiler.lower.lower import lower
from tremula.compiler.passes.cost import cost_steps
from tremula.compiler.passes.exchange import exchanges_of
from tremula.compiler.passes.liveness import analyse_liveness
from tremula.compiler.passes.memory import memory_of
from tremula.poplar.graph import Graph
from tremula.poplar.target import IPUModel


class Touch(Vertex):
    """One vector of each direction; what it computes does not matter."""

    reads: Input[Vector[float32]]
    changes: InOut[Vector[float32]]
    writes: Output[Vector[float32]]

    def compute(self):
        for i in range(len(self.writes)):
            self.writes[i] = self.reads[0]

    def cycles(v, chip):
        return v.sizes["reads"] + 10


@pytest.fixture(scope="session")
def touch() -> type[Vertex]:
    return Touch


@pytest.fixture(scope="session")
def small_graph() -> Callable[..., Graph]:
    """small_graph(tiles_per_ipu, n_ipus): an empty graph."""

    def make(tiles_per_ipu: int = 4, n_ipus: int = 1, **changes: object) -> Graph:
        return Graph(IPUModel("ipu2", n_ipus, tiles_per_ipu, **changes).create_device())

    return make


@pytest.fixture(scope="session")
def analysed() -> Callable[..., SimpleNamespace]:
    """analysed(graph, programs): everything the analyses find."""

    def run(graph: Graph, programs: object) -> SimpleNamespace:
        low = lower(graph, programs)
        moved = exchanges_of(low)
        live = analyse_liveness(low)
        costs = cost_steps(low, moved)
        return SimpleNamespace(
            low=low,
            exchanges=moved,
            costs=costs,
            liveness=live,
            memory=memory_of(low, live, moved, costs.takes_part),
        )

    return run

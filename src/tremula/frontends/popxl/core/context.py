"""What is open while operations are made: graphs, chips, tile sets, names, orders."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tremula.base.context_values import pushed

COMPUTE, IO = "compute", "io"


# Stacks of what this thread has opened; the last entry counts.
GRAPHS: ContextVar[tuple[Any, ...]] = ContextVar("graphs", default=())
IPUS: ContextVar[tuple[int | None, ...]] = ContextVar("ipus", default=())
TILE_SETS: ContextVar[tuple[str, ...]] = ContextVar("tile_sets", default=())
# Names, with the graph they were opened in.
NAMES: ContextVar[tuple[tuple[Any, str], ...]] = ContextVar("names", default=())
SEQUENCES: ContextVar[tuple[Any, ...]] = ContextVar("sequences", default=())
STAGES: ContextVar[tuple[int, ...]] = ContextVar("pipeline_stages", default=())
# Functions that get each operation of any graph, by handle.
HOOKS: ContextVar[tuple[tuple[int, Callable[[Any], object]], ...]] = ContextVar("hooks", default=())
HOOK_HANDLES = itertools.count(1)


def get_current_graph() -> Any:
    """The graph that operations are added to."""
    graphs = GRAPHS.get()
    if not graphs:
        raise RuntimeError(
            "There is no current graph. Use a graph as a context: `with ir.main_graph:`"
        )
    return graphs[-1]


def get_main_graph() -> Any:
    """The main graph of the current graph's Ir."""
    return get_current_graph().ir.main_graph


def gcg() -> Any:
    """The graph that operations are added to."""
    return get_current_graph()


def gmg() -> Any:
    """The main graph of the current graph's Ir."""
    return get_main_graph()


def gir() -> Any:
    """The Ir of the current graph."""
    return get_current_graph().ir


get_ir = gir


@contextmanager
def ipu(ipu: int | None) -> Iterator[int | None]:
    """Operations made inside run on this chip of their replica; None leaves it open."""
    with pushed(IPUS, None if ipu is None else int(ipu)):
        yield ipu


@contextmanager
def io_tiles() -> Iterator[None]:
    """Operations made inside run on tiles that are set apart for transfers."""
    with pushed(TILE_SETS, IO):
        yield


@contextmanager
def name_scope(name: str) -> Iterator[list[str]]:
    """Names of tensors made inside begin with `name/`."""
    with pushed(NAMES, (get_current_graph(), name)):
        yield [name for _, name in NAMES.get()]


@contextmanager
def pipeline_stage(stage: int) -> Iterator[None]:
    """Operations made inside belong to a stage of a pipeline."""
    with pushed(STAGES, int(stage)):
        yield


def current_ipu() -> int | None:
    ipus = IPUS.get()
    return ipus[-1] if ipus else 0


def current_tile_set() -> str:
    tile_sets = TILE_SETS.get()
    return tile_sets[-1] if tile_sets else COMPUTE


def current_stage() -> int | None:
    """The stage of a pipeline that is open."""
    stages = STAGES.get()
    return stages[-1] if stages else None

"""What is open while operations are made: graphs, chips, tile sets, names, orders."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

COMPUTE, IO = "compute", "io"


@dataclass
class Context:
    """Stacks of what is open; the last entry holds."""

    graphs: list[Any] = field(default_factory=list)
    ipus: list[int] = field(default_factory=list)
    tile_sets: list[str] = field(default_factory=list)
    names: list[tuple[Any, str]] = field(default_factory=list)  # with the graph they were opened in
    sequences: list[Any] = field(default_factory=list)
    stages: list[int] = field(default_factory=list)  # of pipelines


CONTEXT = Context()


def get_current_graph() -> Any:
    """The graph that operations are added to."""
    if not CONTEXT.graphs:
        raise RuntimeError(
            "There is no current graph. Use a graph as a context: `with ir.main_graph:`"
        )
    return CONTEXT.graphs[-1]


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
def ipu(ipu: int) -> Iterator[None]:
    """Operations made inside run on this chip of their replica."""
    CONTEXT.ipus.append(int(ipu))
    try:
        yield
    finally:
        CONTEXT.ipus.pop()


@contextmanager
def io_tiles() -> Iterator[None]:
    """Operations made inside run on tiles that are set apart for transfers."""
    CONTEXT.tile_sets.append(IO)
    try:
        yield
    finally:
        CONTEXT.tile_sets.pop()


@contextmanager
def name_scope(name: str) -> Iterator[None]:
    """Names of tensors made inside begin with `name/`."""
    CONTEXT.names.append((get_current_graph(), name))
    try:
        yield
    finally:
        CONTEXT.names.pop()


@contextmanager
def pipeline_stage(stage: int) -> Iterator[None]:
    """Operations made inside belong to a stage of a pipeline."""
    CONTEXT.stages.append(int(stage))
    try:
        yield
    finally:
        CONTEXT.stages.pop()


def current_ipu() -> int:
    return CONTEXT.ipus[-1] if CONTEXT.ipus else 0


def current_tile_set() -> str:
    return CONTEXT.tile_sets[-1] if CONTEXT.tile_sets else COMPUTE


def current_scope(graph: Any) -> str:
    """The names open in a graph, joined."""
    return "/".join(name for owner, name in CONTEXT.names if owner is graph)

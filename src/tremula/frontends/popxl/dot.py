"""A program as text for Graphviz: operations of each graph, and what they pass on."""

import os
from pathlib import Path
from typing import Protocol

from tremula.base.storage.atomic_file import write_text
from tremula.frontends.popart.options.options import SessionOptions
from tremula.frontends.popxl.core.graph import Graph

VARIABLE = "POPART_DOT_CHECKS"


class PicturedProgram(Protocol):
    """What a picture shows: graphs; and the options that choose pictures."""

    session_options: SessionOptions

    @property
    def graphs(self) -> tuple[Graph, ...]: ...


def is_active(ir: PicturedProgram, check: str) -> bool:
    """Whether the options of a program, or the environment, want a picture at a checkpoint."""
    names = {*ir.session_options.dotChecks, *os.environ.get(VARIABLE, "").split(":")}
    wanted = {str(name).upper() for name in names if name}
    return "ALL" in wanted or check.upper() in wanted


def activate_all(ir: PicturedProgram) -> None:
    """Every checkpoint gives a picture, unless the script or the environment chose some."""
    if VARIABLE not in os.environ and not ir.session_options.dotChecks:
        ir.session_options.dotChecks = {"ALL"}


def write_dot(ir: PicturedProgram, check: str) -> None:
    """Write `<check>.dot` to the folder of logs."""
    folder = Path(ir.session_options.logDir or ".")
    folder.mkdir(parents=True, exist_ok=True)
    write_text((folder / f"{check}.dot"), dot_of(ir))


def dot_of(ir: PicturedProgram) -> str:
    """All graphs as text for Graphviz."""
    lines = ["digraph program {"]
    for number, graph in enumerate(ir.graphs):
        lines += [f"  subgraph cluster_{number} {{", f'    label="{graph.id or "main"}"']
        lines += [f"    {line}" for line in _lines(graph, number)]
        lines.append("  }")
    return "\n".join([*lines, "}"]) + "\n"


def _lines(graph: Graph, number: int) -> list[str]:
    """A node for each operation, an edge for each tensor that another one reads."""
    names = {id(op): f"op_{number}_{i}" for i, op in enumerate(graph.ops)}
    lines = [f'{names[id(op)]} [label="{op.kind}"]' for op in graph.ops]
    for op in graph.ops:
        lines += [
            f'{names[id(t.producer)]} -> {names[id(op)]} [label="{t.name} {t.shape}"]'
            for t in op.inputs
            if id(t.producer) in names
        ]
    return lines

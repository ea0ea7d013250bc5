"""Graphs as DOT text, which Graphviz draws: vertices with their edges, compute sets with data."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import TextIO

import numpy as np

from tremula.base.storage import atomic_file
from tremula.codelets.spec import Direction
from tremula.poplar.programs import Execute, Function, Program, Switch
from tremula.poplar.tensors.variables import VariableTable
from tremula.poplar.vertices.columns import EdgeColumn, FrozenTable
from tremula.poplar.vertices.compute_set import ComputeSet


def write_text(file: "str | Path | TextIO", text: str) -> None:
    """Write to a path or an open file."""
    if isinstance(file, str | Path):
        atomic_file.write_text(file, text)
    else:
        file.write(text)


def vertex_graph(variables: VariableTable, sets: Sequence[ComputeSet]) -> str:
    """One node per vertex and variable, an edge per field and variable it touches."""
    lines, used = [], set()
    for s, compute_set in enumerate(sets):
        lines += [f"  subgraph cluster_{s} {{", f"    label={_quoted(compute_set.name)};"]
        edges = []
        for t, table in enumerate(compute_set.frozen_tables()):
            name = table.codelet.spec.name
            for row, tile in enumerate(table.tile.tolist()):
                label = _quoted(f"{name}\ntile {tile}" if tile >= 0 else name)
                lines.append(f"    v{s}_{t}_{row} [shape=box, label={label}];")
            for field, row, variable in _touched(variables, table):
                used.add(variable)
                edges += _arrows(table, field, f"v{s}_{t}_{row}", f"x{variable}")
        lines += ["  }", *edges]
    return _digraph("vertices", [*_variable_nodes(variables, used), *lines])


def compute_graph(
    variables: VariableTable, sets: Sequence[ComputeSet], *, is_ordered: bool = False
) -> str:
    """One node per compute set and variable, an edge where a set reads or writes a variable."""
    numbers = {id(s): i for i, s in enumerate({id(s): s for s in sets}.values())}
    lines: list[str] = []
    used: set[int] = set()
    for compute_set in {id(s): s for s in sets}.values():
        node = f"c{numbers[id(compute_set)]}"
        label = _quoted(f"{compute_set.name}\n{compute_set.n_vertices} vertices")
        lines.append(f"  {node} [shape=box, label={label}];")
        arrows: dict[str, None] = {}
        for table in compute_set.frozen_tables():
            for field, _, variable in _touched(variables, table):
                used.add(variable)
                arrows |= dict.fromkeys(_arrows(table, field, node, f"x{variable}", names=False))
        lines += arrows
    if is_ordered:
        order = [f"c{numbers[id(s)]}" for s in sets]
        lines += [f"  {a} -> {b} [style=dashed];" for a, b in pairwise(order)]
    return _digraph("compute_sets", [*_variable_nodes(variables, used), *lines])


def executed_sets(programs: Iterable[Program]) -> list[ComputeSet]:
    """The compute sets of programs in the order they execute them, each as often as named."""
    return [p.compute_set for program in programs for p in _walk(program) if isinstance(p, Execute)]


def _walk(program: Program) -> Iterator[Program]:
    """A program and all inside it, depth first."""
    yield program
    for field in fields(program):
        value = getattr(program, field.name)
        if isinstance(program, Switch) and field.name == "cases":
            value = list(dict(value).values())
        if isinstance(value, Function):
            value = value.program
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Program):
                yield from _walk(inner)


def _touched(variables: VariableTable, table: FrozenTable) -> Iterator[tuple[str, int, int]]:
    """(field, row, variable) of every connection, each once."""
    bases = np.array(variables.base_bytes, np.int64)
    for name, column in table.edges.items():
        size = next(f for f in table.codelet.spec.fields if f.name == name).type.n_bytes
        rows, variable = _variables_of(column, bases, size)
        for row, one in np.unique(np.stack([rows, variable], axis=1), axis=0).tolist():
            yield name, row, one


def _variables_of(
    column: EdgeColumn, bases: np.ndarray, n_bytes: int
) -> tuple[np.ndarray, np.ndarray]:
    is_used = column.runs.count > 0
    at = column.runs.start[is_used] * n_bytes
    return column.row_of_run()[is_used], np.searchsorted(bases, at, side="right") - 1


def _arrows(
    table: FrozenTable, field: str, vertex: str, variable: str, *, names: bool = True
) -> list[str]:
    spec = next(f for f in table.codelet.spec.fields if f.name == field)
    label = f" [label={_quoted(field)}]" if names else ""
    into, out = f"  {variable} -> {vertex}{label};", f"  {vertex} -> {variable}{label};"
    if spec.direction is Direction.INPUT:
        return [into]
    return [out] if spec.direction is Direction.OUTPUT else [into, out]


def _variable_nodes(variables: VariableTable, used: set[int]) -> list[str]:
    nodes = []
    for number in sorted(used):
        shape = list(variables.shapes[number])
        label = _quoted(f"{variables.names[number]}\n{variables.types[number]} {shape}")
        nodes.append(f"  x{number} [shape=ellipse, label={label}];")
    return nodes


def _digraph(name: str, lines: list[str]) -> str:
    return "\n".join([f"digraph {name} {{", *lines, "}", ""])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

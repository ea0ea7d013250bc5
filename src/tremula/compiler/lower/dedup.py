"""Compute sets that are alike: the same vertices on the same tiles, over data laid out alike.

The layers of a network repeat. Of such compute sets only the first is verified, exchanged and
costed: the others differ only in the addresses of their variables. Copies can be alike, too.
"""

import hashlib

import numpy as np

from tremula.compiler.program_ir import AlikeCopy, FrozenComputeSet, FrozenGraph
from tremula.poplar.vertices.columns import EdgeColumn, FrozenTable
from tremula.poplar.vertices.compute_set import TemplateInstance


def first_alike(graph: FrozenGraph) -> np.ndarray:
    """int64[n_compute_sets]: the first compute set like each; itself if there is no earlier one."""
    layouts = _VariableLayouts(graph)
    seen: dict[object, int] = {}
    return np.array(
        [
            seen.setdefault(_signature(cs, layouts), number)
            for number, cs in enumerate(graph.compute_sets)
        ],
        np.int64,
    )


class _VariableLayouts:
    """A digest of each variable's type, size, constness and tile map, relative to its own start."""

    def __init__(self, graph: FrozenGraph):
        self.graph = graph
        self.base = np.asarray(graph.variables.base_bytes)
        self.end = np.asarray(graph.variables.end_bytes)
        self._digests: dict[int, bytes] = {}

    def of(self, variable: int) -> bytes:
        found = self._digests.get(variable)
        if found is None:
            found = self._digests[variable] = self._digest(variable)
        return found

    def _digest(self, variable: int) -> bytes:
        variables, tile_map = self.graph.variables, self.graph.tile_map
        base, end = int(self.base[variable]), int(self.end[variable])
        first = int(np.searchsorted(tile_map.end, base, "right"))
        last = int(np.searchsorted(tile_map.begin, end, "left"))
        kind = f"{variables.types[variable].name} {end - base} {variables.is_constant[variable]}"
        digest = _new_digest(kind.encode())
        _add(digest, tile_map.begin[first:last] - base)
        _add(digest, tile_map.end[first:last] - base)
        _add(digest, tile_map.tile[first:last])
        return digest.digest()


def alike_copies(
    graph: FrozenGraph, kinds: list[tuple[bytes, tuple[int, ...]]]
) -> tuple[AlikeCopy, ...]:
    """For each copy, of a digest and variables, the first that moves the same between tiles."""
    layouts = _VariableLayouts(graph)
    seen: dict[object, int] = {}
    result = []
    for number, (digest, variables) in enumerate(kinds):
        key = (digest, *(layouts.of(variable) for variable in variables))
        result.append(AlikeCopy(seen.setdefault(key, number), variables))
    return tuple(result)


def _new_digest(data: bytes = b"") -> "hashlib._Hash":
    return hashlib.sha1(data, usedforsecurity=False)  # the fastest digest with hardware support


def _add(digest: "hashlib._Hash", column: np.ndarray) -> None:
    digest.update(np.ascontiguousarray(column).data)


def _signature(compute_set: FrozenComputeSet, layouts: _VariableLayouts) -> object:
    of = compute_set.contents
    if isinstance(of, TemplateInstance):  # a template fixes all but where its variables are
        return of.template, *(layouts.of(variable) for variable in of.variables)
    digest = _new_digest()
    numbers: dict[int, int] = {}  # variables in the order they are met
    for table in compute_set.tables:
        _add_table(digest, table)
        for name, edge in table.edges.items():
            n_bytes = table.codelet.spec.field(name).type.n_bytes
            _add_edge(digest, edge, n_bytes, layouts, numbers)
    for variable in numbers:
        digest.update(layouts.of(variable))
    return digest.digest()


def _add_table(digest: "hashlib._Hash", table: FrozenTable) -> None:
    digest.update(f"{table.codelet.spec.name} {id(table.codelet)} {table.n_rows}".encode())
    _add(digest, table.tile)
    for state in table.states.values():
        for column in (state.start, state.value):
            if column is not None:
                _add(digest, column)
    for estimate in (table.estimate_cycles, table.estimate_flops):
        _add(digest, np.empty(0) if estimate is None else estimate)


def _add_edge(
    digest: "hashlib._Hash",
    edge: EdgeColumn,
    n_bytes: int,
    layouts: _VariableLayouts,
    numbers: dict[int, int],
) -> None:
    start, count, stride = edge.runs
    _add(digest, edge.sub_start)
    _add(digest, edge.run_start)
    _add_uniform(digest, count)
    _add_uniform(digest, stride)
    _add_starts(digest, start, n_bytes, layouts, numbers)


def _add_uniform(digest: "hashlib._Hash", column: np.ndarray) -> None:
    """A column that usually holds one number throughout."""
    is_uniform = len(column) > 0 and bool((column == column[0]).all())
    digest.update(f"{len(column)} {is_uniform}".encode())
    _add(digest, column[:1] if is_uniform else column)


def _add_starts(
    digest: "hashlib._Hash",
    start: np.ndarray,
    n_bytes: int,
    layouts: _VariableLayouts,
    numbers: dict[int, int],
) -> None:
    """Where runs start, relative to their variables."""
    if not len(start):
        return
    variables = layouts.graph.variables
    low, high = (
        variables.id_at(int(start.min()) * n_bytes),
        variables.id_at(int(start.max()) * n_bytes),
    )
    if low == high:
        number = numbers.setdefault(low, len(numbers))
        digest.update(f"{number}".encode())
        _add(digest, start - int(layouts.base[low]) // n_bytes)
        return
    ids = variables.ids_at(start * n_bytes)
    met, inverse = np.unique(ids, return_inverse=True)
    local = np.array([numbers.setdefault(int(v), len(numbers)) for v in met], np.int64)
    _add(digest, local[inverse])
    _add(digest, start - layouts.base[ids] // n_bytes)

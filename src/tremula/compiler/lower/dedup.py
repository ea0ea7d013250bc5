"""Compute sets that are alike: the same vertices on the same tiles, over data laid out alike.

The layers of a network repeat. Of such compute sets only the first is verified, exchanged and
costed: the others differ only in the addresses of their variables. Copies can be alike, too.

So are the layers of a model on different chips, but for the numbers of their tiles. What is on one
chip altogether is compared with that on other chips by the places of tiles on their chips.
"""

import hashlib
from collections.abc import Iterable

import numpy as np

from tremula.compiler.program_ir import AlikeCopy, FrozenComputeSet, FrozenGraph, OnChips
from tremula.poplar.tensors.layout import key_bytes
from tremula.poplar.vertices.columns import EdgeColumn, FrozenTable
from tremula.poplar.vertices.compute_set import TemplateInstance


def first_alike(graph: FrozenGraph, layouts: "VariableLayouts | None" = None) -> np.ndarray:
    """int64[n_compute_sets]: the first compute set like each; itself if there is no earlier one."""
    layouts = layouts or VariableLayouts(graph)
    seen: dict[object, int] = {}
    return np.array(
        [
            seen.setdefault(_signature(cs, layouts), number)
            for number, cs in enumerate(graph.compute_sets)
        ],
        np.int64,
    )


def alike_on_chips(graph: FrozenGraph) -> OnChips:
    """For each compute set the first like it on any chip, itself if it is on several."""
    numbers = np.array(graph.set_numbers(), np.int64)
    first, n_tiles = numbers.copy(), np.zeros_like(numbers)
    if graph.target.n_ipus == 1:
        return OnChips(first, n_tiles)
    layouts, chips = VariableLayouts(graph, is_on_chip=True), _Chips()
    for number in np.unique(numbers).tolist():
        compute_set = graph.compute_sets[number]
        digest = _digest_of_tables(compute_set.tables, layouts)
        chip = layouts.chip_of_all(table.tile for table in compute_set.tables)
        mine = numbers == number
        first[mine], n_tiles[mine] = chips.first_like(number, digest, chip, layouts.per_chip)
    return OnChips(first, n_tiles)


class _Chips:
    """What was met first of each kind, and on which chip."""

    def __init__(self) -> None:
        self.seen: dict[object, tuple[int, int]] = {}

    def first_like(
        self, number: int, key: object, chip: int | None, per_chip: int
    ) -> tuple[int, int]:
        """(the first of its kind, how many tiles further on this one is)."""
        if chip is None:
            return number, 0
        first, home = self.seen.setdefault(key, (number, chip))
        return first, (chip - home) * per_chip


class VariableLayouts:
    """A digest of each variable's type, size, constness and tile map, relative to its own start.

    With `is_on_chip` tiles are numbered within the chip, and the chips that occur are noted.
    """

    def __init__(self, graph: FrozenGraph, *, is_on_chip: bool = False):
        self.graph = graph
        self.per_chip = graph.target.tiles_per_ipu if is_on_chip else graph.target.n_tiles
        self.chips: set[int] = set()  # of the queries since the last `chip_of_all`
        self._chips_of: dict[int, set[int]] = {}
        self.base = np.asarray(graph.variables.base_bytes)
        self.end = np.asarray(graph.variables.end_bytes)
        # The entries of the tile map that each variable has.
        self._first = np.searchsorted(graph.tile_map.end, self.base, "right")
        self._last = np.searchsorted(graph.tile_map.begin, self.end, "left")
        self._digests: dict[int, bytes] = {}

    def of(self, variable: int) -> bytes:
        result = self._digests.get(variable)
        if result is None:
            result = self._digests[variable] = self._digest(variable)
        self.chips |= self._chips_of[variable]
        return result

    def chip_of_all(self, tiles: Iterable[np.ndarray]) -> int | None:
        """The chip of all variables queried since, and of tiles; None if there are several."""
        result, self.chips = self.chips, set()
        for column in tiles:
            result |= set(np.unique(column // self.per_chip).tolist())
        return result.pop() if len(result) == 1 else None

    def _digest(self, variable: int) -> bytes:
        variables, tile_map = self.graph.variables, self.graph.tile_map
        base, end = int(self.base[variable]), int(self.end[variable])
        first, last = int(self._first[variable]), int(self._last[variable])
        kind = f"{variables.types[variable].name} {end - base} {variables.is_constant[variable]}"
        digest = _new_digest(kind.encode())
        _add(digest, tile_map.begin[first:last] - base)
        _add(digest, tile_map.end[first:last] - base)
        tile, chips = tile_map.tile[first:last], {0} if last > first else set()
        if self.per_chip < self.graph.target.n_tiles:
            chip, tile = np.divmod(tile, self.per_chip)
            chips = set(np.unique(chip).tolist())
        self._chips_of[variable] = chips
        _add(digest, tile)
        return digest.digest()


def alike_copies(
    graph: FrozenGraph, kinds: list[tuple[bytes, tuple[int, ...]]], layouts: "VariableLayouts"
) -> tuple[AlikeCopy, ...]:
    """For each copy, of a digest and variables, the first that moves the same between tiles."""
    is_one_chip = layouts.per_chip == graph.target.tiles_per_ipu
    on_chip = layouts if is_one_chip else VariableLayouts(graph, is_on_chip=True)
    layouts.chips.clear()
    seen: dict[object, int] = {}
    chips, result = _Chips(), []
    for number, (digest, variables) in enumerate(kinds):
        first = seen.setdefault((digest, *map(layouts.of, variables)), number)
        key = (digest, *map(on_chip.of, variables))
        others = chips.first_like(first, key, on_chip.chip_of_all(()), on_chip.per_chip)
        result.append(AlikeCopy(first, variables, *others))
    return tuple(result)


def _new_digest(data: bytes = b"") -> "hashlib._Hash":
    return hashlib.sha1(data, usedforsecurity=False)


def _add(digest: "hashlib._Hash", column: np.ndarray) -> None:
    digest.update(key_bytes(column))


def _signature(compute_set: FrozenComputeSet, layouts: VariableLayouts) -> object:
    of = compute_set.contents
    if isinstance(of, TemplateInstance):  # a template fixes all but where its variables are
        return of.template, *(layouts.of(variable) for variable in of.variables)
    return _digest_of_tables(compute_set.tables, layouts)


def _digest_of_tables(tables: tuple[FrozenTable, ...], layouts: VariableLayouts) -> bytes:
    digest = _new_digest()
    numbers: dict[int, int] = {}  # variables in the order they are met
    for table in tables:
        _add_table(digest, table, layouts.per_chip)
        for name, edge in table.edges.items():
            n_bytes = table.codelet.spec.field(name).type.n_bytes
            _add_edge(digest, edge, n_bytes, layouts, numbers)
    for variable in numbers:
        digest.update(layouts.of(variable))
    return digest.digest()


def _add_table(digest: "hashlib._Hash", table: FrozenTable, per_chip: int) -> None:
    digest.update(f"{table.codelet.spec.name} {id(table.codelet)} {table.n_rows}".encode())
    _add(digest, table.tile % per_chip)
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
    layouts: VariableLayouts,
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
    layouts: VariableLayouts,
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

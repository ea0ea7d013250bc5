"""Which tile sends how many bytes to which: columns of pairs, found again from an executable.

The exchange pass keeps only sums per tile. From its map of tiles and the addresses of its vertices
and copies an executable says who needs whose bytes, each byte once per receiving tile, as
`compiler/passes/exchange.py` counts them: the bytes that a tile receives here are those there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tremula.base.errors import MissingProfileData
from tremula.codelets.columns import columns_of
from tremula.compiler.executable.executable import Executable
from tremula.compiler.executable.records import ComputeSetRecord, TableRecord
from tremula.compiler.lower.copies import contiguous_pairs
from tremula.compiler.passes.intervals import merge_per_group
from tremula.compiler.passes.piece_sweeps import cut_elsewhere
from tremula.compiler.program_ir import CopyPlan, Opcode, StepKind
from tremula.poplar.tensors.interval_sweeps import filled
from tremula.poplar.tensors.runs import byte_intervals
from tremula.poplar.tensors.tile_map import ByteTileMap

Ints = np.ndarray
_NOTHING = np.empty(0, np.int64)


class PairTraffic(NamedTuple):
    """Bytes from tile to tile: one row per pair that has any, sorted by sender, then receiver."""

    source: Ints
    destination: Ints
    n_bytes: Ints


NO_TRAFFIC = PairTraffic(_NOTHING, _NOTHING, _NOTHING)


class _Needs(NamedTuple):
    """Bytes [begin, end) that a tile reads or writes, wherever they are."""

    tile: Ints
    begin: Ints
    end: Ints


@dataclass(frozen=True)
class TrafficOfSteps:
    """Asks an executable for the traffic of its steps; those that move alike are found once."""

    executable: Executable

    def __post_init__(self) -> None:
        if self.executable.tile_map is None:
            raise MissingProfileData(
                "this program was compiled before executables stored where bytes are.",
                hint="compile and run it again with this version",
            )

    @cached_property
    def _known(self) -> dict[int, PairTraffic]:
        return {}

    @cached_property
    def _copy_of_step(self) -> dict[int, int]:
        code, step_of = self.executable.code, self.executable.step_of
        rows = np.flatnonzero((code[:, 0] == Opcode.COPY) & (step_of >= 0))
        return dict(zip(step_of[rows].tolist(), code[rows, 1].tolist(), strict=True))

    def of_step(self, step: int) -> PairTraffic:
        """What one execution of a step sends from tile to tile; nothing of hosts and replicas."""
        row = int(self.executable.analysis.exchanges.row_of_step[step])
        if row < 0:
            return NO_TRAFFIC
        if row not in self._known:
            self._known[row] = joined(list(self._parts(step)))
        return self._known[row]

    def _parts(self, step: int) -> Iterator[PairTraffic]:
        record = self.executable.steps[step]
        if record.kind is StepKind.EXECUTE:
            read, written = _needs_of_set(self.executable, record.compute_set)
            here, low, high, home = self._elsewhere(read)
            yield PairTraffic(home, here, high - low)
            here, low, high, home = self._elsewhere(written)
            yield PairTraffic(here, home, high - low)
        elif step in self._copy_of_step:
            plan = self.executable.copies[self._copy_of_step[step]]
            here, low, high, home = self._elsewhere(self._needs_of_copy(plan))
            yield PairTraffic(home, here, high - low)

    def _elsewhere(self, needs: _Needs) -> Ints:
        """(tile, begin, end, home) of what lies on another tile, each byte once a tile."""
        n_tiles, span = self.executable.target.n_tiles, self.executable.n_arena_bytes
        union = merge_per_group(*needs, n_tiles, span)
        tile, low, high = (np.ascontiguousarray(c) for c in union[:3])
        n_expected = len(low) + len(low) // 4 + 64  # few are cut
        columns = *self._map, tile, low, high, self._map.entries_at(low)
        return filled(cut_elsewhere, 4, n_expected, *columns)

    @property
    def _map(self) -> ByteTileMap:
        tile_map = self.executable.tile_map
        assert tile_map is not None, "__post_init__ checks it"
        return tile_map

    def _needs_of_copy(self, plan: CopyPlan) -> _Needs:
        """The tiles of a copy's destinations need its sources."""
        source, destination, n_bytes = contiguous_pairs(plan)
        owner, low, high, tile = self._map.split(destination, destination + n_bytes)
        begin = source[owner] + (low - destination[owner])
        return _Needs(tile, begin, begin + (high - low))


def joined(parts: list[PairTraffic]) -> PairTraffic:
    """The sum of several, with one row per pair."""
    source, destination, n_bytes = (
        np.concatenate([_NOTHING, *column]) for column in zip(*parts, strict=True)
    ) if parts else NO_TRAFFIC  # fmt: skip
    if not len(source):
        return NO_TRAFFIC
    order = np.lexsort((destination, source))
    source, destination = source[order], destination[order]
    is_new = (source[1:] != source[:-1]) | (destination[1:] != destination[:-1])
    first = np.flatnonzero(np.concatenate(([True], is_new)))
    return PairTraffic(source[first], destination[first], np.add.reduceat(n_bytes[order], first))


def _needs_of_set(executable: Executable, number: int) -> tuple[_Needs, _Needs]:
    """What the vertices of a compute set read, and what they write, on which tiles."""
    compute_set = executable.compute_sets[number]
    scratch_first = int(executable.variables.end_bytes.max(initial=0))
    read, written, scratch = [], [], []
    for table in compute_set.tables:
        for needs, is_read, is_written in _fields(executable, table):
            is_scratch = needs.begin >= scratch_first
            scratch.append(_selected(needs, is_scratch))
            direct = _selected(needs, ~is_scratch)
            read += [direct] if is_read else []
            written += [direct] if is_written else []
    owner = _ScratchOwners(_stacked(scratch))
    gathers, scatters = _scratch_homes(compute_set, owner)
    return _stacked([*read, *gathers]), _stacked([*written, *scatters])


def _fields(executable: Executable, table: TableRecord) -> Iterator[tuple[_Needs, bool, bool]]:
    """The bytes of every edge field of a table: (needs, is read, is written)."""
    columns = columns_of(executable.codelets[table.codelet].spec.fields)
    of_field: dict[str, dict[str, Ints]] = {}
    for column in columns:
        of_field.setdefault(column.field.name, {})[column.role] = table.columns[column.index]
    for field in {column.field.name: column.field for column in columns}.values():
        roles = of_field[field.name]
        if "offset" not in roles:
            continue
        begin = roles["offset"] * field.type.n_bytes
        n_bytes = roles["length"] * field.type.n_bytes if "length" in roles else field.type.n_bytes
        start = roles.get("start")
        tile = table.tile if start is None else np.repeat(table.tile, np.diff(start))
        needs = _Needs(tile.astype(np.int64), begin, begin + n_bytes)
        yield _selected(needs, needs.end > needs.begin), field.is_read, field.is_written


class _ScratchOwners:
    """Tiles of the scratch space in which scattered fields are put together."""

    def __init__(self, needs: _Needs):
        order = np.argsort(needs.begin, kind="stable")
        self.begin, self.tile = needs.begin[order], needs.tile[order]

    def tiles_at(self, address: Ints) -> Ints:
        return self.tile[np.searchsorted(self.begin, address, side="right") - 1]


def _scratch_homes(
    compute_set: ComputeSetRecord, owner: _ScratchOwners
) -> tuple[list[_Needs], list[_Needs]]:
    """What comes into scratch space, and what leaves it: bytes at home, and tiles of the fields."""
    result: tuple[list[_Needs], list[_Needs]] = ([], [])
    ways = (compute_set.gathers, False), (compute_set.scatters, True)
    for needs, (plans, is_out) in zip(result, ways, strict=True):
        for plan in plans:
            home, scratch = (plan.source, plan.destination)[:: -1 if is_out else 1]
            begin, end, run = byte_intervals(home, plan.n_bytes)
            needs.append(_Needs(owner.tiles_at(scratch.start[run] * plan.n_bytes), begin, end))
    return result


def _selected(needs: _Needs, is_wanted: Ints) -> _Needs:
    return needs if is_wanted.all() else _Needs(*(column[is_wanted] for column in needs))


def _stacked(parts: list[_Needs]) -> _Needs:
    columns = zip(*parts, strict=True) if parts else ((),) * 3
    return _Needs(*(np.concatenate([_NOTHING, *column]) for column in columns))

"""The plan of an embedding: how rows, columns and lookups of a multi-slice are split over tiles.

Every candidate is costed as PopLibs' planner does: exchange of the table's parts, lookups on each
tile, collection of partial results; zeroing, reduction and addition for updates. Indices are taken
to be uniformly distributed, since a cost cannot look at data. The cheapest plan whose temporary
memory fits wins.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np

from tremula.base.errors import suggest
from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, Type, as_type
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.target import Target
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.popops.slicing.costs import (
    fill_cycles,
    multi_slice_cycles,
    multi_update_cycles,
    partials_cycles,
    scaled_add_cycles,
)
from tremula.poplibs.registry import PoplibsError

Ints = np.ndarray
OPERATIONS = ("set", "add", "max", "mul")
MIN_INDICES_PER_TILE = 32  # PopLibs spreads indices no thinner
INDEX_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceOptions:
    """Options of a plan. `operation_for_update`: "set" (a plain update), "add", "max" or "mul".

    Every row of a block is a piece of each exchange that rearranges the table; of tables that
    other operations read, too, rows of blocks have `least_row_bytes` or more where they can.
    """

    used_for_slice: bool = True
    used_for_update: bool = True
    operation_for_update: str = "add"
    available_memory_proportion: float = 0.6
    indices_are_sorted: bool = False
    validate_indices: bool = False
    partial_type: Type | None = None
    least_row_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePlan:
    """How one multi-slice or multi-update is split, and what the planner expects of it."""

    type: Type
    n_groups: int
    n_entries: int
    row_size: int
    n_lookups: int
    data_path_bytes: int  # of the chip; blocks of the table are cut into whole ones
    options: SliceOptions
    sliced_dim_split: int = 1  # parts of the table's rows
    unsliced_dim_split: int = 1  # parts of its columns
    lookup_split: int = 1  # lookups done side by side
    lookup_serial_split: int = 1  # lookups done one after the other
    group_split: int = 1
    cycles: int = 0  # as the planner estimates; the report of the compiled graph is better
    n_temporary_bytes: int = 0
    cost_terms: tuple[tuple[str, int], ...] = ()

    @property
    def partial_type(self) -> Type:
        """What updates are summed in."""
        return self.options.partial_type or self.type

    def vector_width(self, type: Type) -> int:
        """Elements in one data path."""
        return max(1, self.data_path_bytes // type.n_bytes)

    def __str__(self) -> str:
        splits = (
            f"rows {self.sliced_dim_split} x columns {self.unsliced_dim_split} x lookups "
            f"{self.lookup_split}, groups {self.group_split}, serial {self.lookup_serial_split}"
        )
        terms = ", ".join(f"{name} {cycles}" for name, cycles in self.cost_terms if cycles)
        return f"{splits}: {self.cycles} cycles ({terms}), {self.n_temporary_bytes} bytes"


def plan(
    where: Graph | Target,
    type: Type | str,
    n_entries: int,
    row_size: int,
    n_lookups: int,
    options: Mapping[str, object] | None = None,
    *,
    n_groups: int = 1,
) -> SlicePlan:
    """The plan for lookups in a table [n_entries, row_size] (or n_groups of them)."""
    target = where.target if isinstance(where, Graph) else where
    sizes = {"n_entries": n_entries, "row_size": row_size, "n_lookups": n_lookups}
    for name, size in (*sizes.items(), ("n_groups", n_groups)):
        if size < 1:
            raise PoplibsError(
                f"a plan needs {name} of 1 or more, got {size}.",
                source=user_source(),
                hint="there is nothing to plan for an empty table; slice without a plan",
            )
    parsed = _parsed_options(as_type(type), dict(options or {}))
    n_tiles = target.tiles_per_ipu
    result = _plan(target.chip, n_tiles, as_type(type), n_groups, *sizes.values(), parsed)
    limit = int(parsed.available_memory_proportion * target.chip.n_bytes_per_tile)
    if result.n_temporary_bytes > limit:
        warnings.warn(
            f"no plan for {n_lookups} lookups in {n_entries} x {row_size} {type} fits "
            f"available_memory_proportion {parsed.available_memory_proportion} ({limit} bytes a "
            f"tile); the cheapest needs {result.n_temporary_bytes} bytes.",
            stacklevel=2,
        )
    return result


def _parsed_options(type: Type, options: dict[str, object]) -> SliceOptions:
    known = [f.name for f in fields(SliceOptions)]
    for name in options:
        if name not in known:
            raise PoplibsError(
                f"unknown plan option {name!r}.", source=user_source(), hint=suggest(name, known)
            )
    if options.get("partial_type") is not None:
        options["partial_type"] = as_type(options["partial_type"])
    parsed = SliceOptions(**options)  # pyright: ignore[reportArgumentType]
    if parsed.operation_for_update not in OPERATIONS:
        raise PoplibsError(
            f"operation_for_update is {parsed.operation_for_update!r}.",
            source=user_source(),
            hint=suggest(str(parsed.operation_for_update), OPERATIONS),
        )
    if not (parsed.used_for_slice or parsed.used_for_update):
        raise PoplibsError(
            "a plan must be used for slices, updates or both; both options are off.",
            source=user_source(),
            hint="leave used_for_slice or used_for_update on",
        )
    allowed = (None, type, FLOAT) if type == HALF else (None, type)
    if parsed.partial_type not in allowed:
        raise PoplibsError(
            f"partial_type {parsed.partial_type} does not fit data of {type}.",
            source=user_source(),
            hint="use the data's type, or FLOAT for HALF data",
        )
    return parsed


@cache
def _plan(  # noqa: PLR0917 - the key of the cache
    chip: Chip,
    n_tiles: int,
    type: Type,
    n_groups: int,
    n_entries: int,
    row_size: int,
    n_lookups: int,
    options: SliceOptions,
) -> SlicePlan:
    """The cheapest plan that fits; without one, the cheapest with the fewest lookups at a time."""
    whole = SlicePlan(
        type=type, n_groups=n_groups, n_entries=n_entries, row_size=row_size,
        n_lookups=n_lookups, options=options, data_path_bytes=chip.data_path_bytes,
    )  # fmt: skip
    limit = options.available_memory_proportion * chip.n_bytes_per_tile
    best = None
    for n_serial in _serial_splits(n_lookups):
        result = _best_of(
            _SliceCandidates(chip, n_tiles, whole, n_lookups // n_serial), n_serial, limit
        )
        if result.n_temporary_bytes <= limit:
            return result
        best = best or result
    assert best is not None, "one at a time is always a candidate"
    return best


def _serial_splits(n_lookups: int) -> list[int]:
    """Powers of two, ascending, whose blocks of lookups are still worth a step each."""
    splits = [1]
    while n_lookups % (splits[-1] * 2) == 0 and n_lookups // splits[-1] > 64:
        splits.append(splits[-1] * 2)
    return splits


def _best_of(candidates: "_SliceCandidates", n_serial: int, limit: float) -> SlicePlan:
    terms = candidates.cost_terms()
    total = np.sum([cycles for _, cycles in terms], axis=0)
    temporary = candidates.temporary_bytes()
    fits = temporary <= limit
    chosen = int(np.argmin(np.where(fits, total, np.iinfo(np.int64).max) if fits.any() else total))
    return replace(
        candidates.plan,
        sliced_dim_split=int(candidates.rows[chosen]),
        unsliced_dim_split=int(candidates.columns[chosen]),
        lookup_split=int(candidates.lookups[chosen]),
        group_split=int(candidates.groups[chosen]),
        lookup_serial_split=n_serial,
        cycles=int(total[chosen]) * n_serial,
        n_temporary_bytes=int(temporary[chosen]),
        cost_terms=tuple((name, int(cycles[chosen]) * n_serial) for name, cycles in terms),
    )


def _splits(n: int, most: int) -> Ints:
    """Numbers of parts up to `most` that make the largest part of n smaller than fewer would."""
    largest = np.unique(ceil_div(n, np.arange(1, min(n, most) + 1)))
    return np.unique(ceil_div(n, largest))


class _SliceCandidates:
    """All splits of a plan as columns: what each tile of the largest part holds and does."""

    def __init__(self, chip: Chip, n_tiles: int, whole: SlicePlan, n_lookups: int) -> None:
        self.chip, self.plan = chip, whole
        self.n_bytes = whole.type.n_bytes
        self.grain = min(whole.row_size, whole.vector_width(whole.type))
        self.n_grains = -(-whole.row_size // self.grain)
        # A table part of fewer than two rows costs more than it saves.
        most_rows = min(n_tiles, -(-whole.n_entries // 2))
        splits_lookups = not whole.options.used_for_update or (
            whole.options.operation_for_update != "set"
        )
        columns, rows, lookups, groups = _products(
            [
                _splits(self.n_grains, self._most_columns(n_tiles)),
                _splits(whole.n_entries, most_rows),
                _splits(n_lookups, n_tiles if splits_lookups else 1),
                _splits(whole.n_groups, n_tiles),
            ],
            n_tiles,
        )
        self.rows, self.columns, self.lookups, self.groups = rows, columns, lookups, groups
        self.n_tile_grains = ceil_div(self.n_grains, columns)
        self.n_tile_columns = self.n_tile_grains * self.grain
        self.n_tile_rows = ceil_div(whole.n_entries, rows)
        self.n_tile_lookups = ceil_div(n_lookups, lookups)
        self.n_tile_groups = ceil_div(whole.n_groups, groups)
        self.n_collected = ceil_div(self.n_tile_lookups, rows)  # second stage, per tile
        self.share = self.n_tile_rows / whole.n_entries  # of the indices that are in range
        self.table_bytes = self.n_tile_rows * self.n_tile_columns * self.n_bytes
        self.table_bytes = self.table_bytes * self.n_tile_groups
        n_all_grains = whole.n_entries * self.n_grains * whole.n_groups
        spread_bytes = -(-n_all_grains // n_tiles) * self.grain * self.n_bytes
        # A badly spread table may have to be copied here first.
        self.moved_bytes = np.maximum(self.table_bytes - spread_bytes, 0)

    def _most_columns(self, n_tiles: int) -> int:
        n_least = -(-self.plan.options.least_row_bytes // (self.grain * self.n_bytes))
        return min(n_tiles, max(1, self.n_grains // max(n_least, 1)))

    def cost_terms(self) -> list[tuple[str, Ints]]:
        terms = []
        if self.plan.options.used_for_slice:
            terms += self._slice_terms()
        if self.plan.options.used_for_update:
            terms += self._update_terms()
        return terms

    def temporary_bytes(self) -> Ints:
        most = np.zeros(len(self.rows), np.int64)
        if self.plan.options.used_for_slice:
            most = np.maximum(most, self._slice_bytes())
        if self.plan.options.used_for_update:
            most = np.maximum(most, self._update_bytes())
        return most

    def _exchange(self, n_bytes: Ints) -> Ints:
        return np.ceil(n_bytes / self.chip.exchange_bytes_per_cycle).astype(np.int64)

    # -- slices ------------------------------------------------------------------------------------

    def _slice_terms(self) -> list[tuple[str, Ints]]:
        groups, is_split = self.n_tile_groups, self.rows > 1
        collected_bytes = self._collected_bytes()
        first, second = (
            groups * multi_slice_cycles(n, self.n_tile_columns, self.n_bytes, self.share, self.chip)
            for n in (self.n_tile_lookups, self.n_collected)
        )
        return [
            ("table exchange", self._exchange(self._table_arriving())),
            ("lookups", first),
            ("collect exchange", self._exchange(collected_bytes)),
            ("collect", second * is_split),
        ]

    def _table_arriving(self) -> Ints:
        return np.maximum(self.table_bytes * (self.lookups > 1), self.moved_bytes)

    def _collected_bytes(self) -> Ints:
        row_bytes = self.n_tile_columns * self.n_bytes * self.n_tile_groups
        return self.rows * self.n_collected * row_bytes * (self.rows > 1)

    def _slice_bytes(self) -> Ints:
        row_bytes = self.n_tile_columns * self.n_bytes
        result = self.n_tile_lookups * row_bytes * self.n_tile_groups * (self.rows > 1)
        index_bytes = self.n_tile_lookups * INDEX_BYTES * self.n_tile_groups
        return np.maximum(
            self._table_arriving() + result + index_bytes,
            result + self._collected_bytes() + self.n_collected * INDEX_BYTES * self.n_tile_groups,
        )

    # -- updates -----------------------------------------------------------------------------------

    def _update_terms(self) -> list[tuple[str, Ints]]:
        plan, groups, are_split = self.plan, self.n_tile_groups, self.lookups > 1
        n_partials = self.n_tile_rows * self.n_tile_columns
        operation = plan.options.operation_for_update
        update = groups * multi_update_cycles(
            self.n_tile_lookups, self.n_tile_columns, plan.partial_type.n_bytes,
            self.n_tile_rows, plan.n_entries, plan.options.indices_are_sorted, operation, self.chip,
        )  # fmt: skip
        reduced = ceil_div(n_partials * groups, self.lookups)
        partial_bytes = reduced * self.lookups * plan.partial_type.n_bytes
        return [
            ("table exchange", 2 * self._exchange(self.moved_bytes)),
            ("zero", fill_cycles(n_partials * groups, plan.partial_type, self.chip) * are_split),
            ("updates exchange", self._exchange(self._arriving_updates())),
            ("update", update),
            ("partials exchange", self._exchange(partial_bytes * are_split)),
            (
                "reduce",
                partials_cycles(reduced, self.lookups, plan.partial_type, self.chip) * are_split,
            ),
            ("add", scaled_add_cycles(reduced, plan.partial_type, self.chip) * are_split),
        ]

    def _arriving_updates(self) -> Ints:
        row_bytes = self.n_tile_columns * self.plan.partial_type.n_bytes
        return self.n_tile_lookups * row_bytes * self.n_tile_groups * (self.rows > 1)

    def _update_bytes(self) -> Ints:
        n_partials = self.n_tile_rows * self.n_tile_columns * self.n_tile_groups
        partial_bytes = n_partials * self.plan.partial_type.n_bytes * (self.lookups > 1)
        index_bytes = self.n_tile_lookups * INDEX_BYTES * self.n_tile_groups
        during = self._arriving_updates() + partial_bytes + index_bytes
        return self.moved_bytes + np.maximum(during, 2 * partial_bytes)


def _products(choices: list[Ints], most: int) -> list[Ints]:
    """All combinations of choices whose product is at most `most`, as columns."""
    columns = [choices[0]]
    for more in choices[1:]:
        so_far = np.prod(columns, axis=0)
        old, new = np.nonzero(so_far[:, None] * more[None, :] <= most)
        columns = [*(column[old] for column in columns), more[new]]
    return columns

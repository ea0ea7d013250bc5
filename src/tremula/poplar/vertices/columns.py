"""Frozen vertex tables: edges, state and tiles of all vertices of a codelet, as columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tremula.base.source import Source
from tremula.codelets.spec import Codelet
from tremula.poplar.tensors.interval_sweeps import rows_of_runs
from tremula.poplar.tensors.runs import Runs, concat_runs, counting, expand, starts_of


@dataclass(frozen=True, slots=True)
class EdgeColumn:
    """One edge field of all rows.

    Row i has sub-vectors sub_start[i] … sub_start[i+1]; sub-vector j has runs run_start[j] …
    run_start[j+1]. Fields that are no lists have one sub-vector per row.
    """

    sub_start: np.ndarray  # int64[n_rows + 1]
    run_start: np.ndarray  # int64[n_subs + 1]
    runs: Runs

    @property
    def n_rows(self) -> int:
        return len(self.sub_start) - 1

    @property
    def is_one_run_each(self) -> bool:
        return len(self.runs.start) == len(self.run_start) - 1

    def sub_lengths(self) -> np.ndarray:
        """int64[n_subs]: elements per sub-vector."""
        if self.is_one_run_each:
            return self.runs.count
        return np.add.reduceat(np.append(self.runs.count, 0), self.run_start[:-1]) * (
            np.diff(self.run_start) > 0
        )

    def row_lengths(self) -> np.ndarray:
        """int64[n_rows]: elements per row."""
        ends = np.concatenate(([0], np.cumsum(self.sub_lengths())))
        return ends[self.sub_start[1:]] - ends[self.sub_start[:-1]]

    def row_of_run(self) -> np.ndarray:
        """int64[n_runs]: the row each run belongs to."""
        row = np.empty(len(self.runs.start), np.int64)
        rows_of_runs(self.sub_start, self.run_start, row)
        return row

    def take(self, rows: np.ndarray) -> "EdgeColumn":
        """The rows in another order."""
        sub_start, sub = _take_csr(self.sub_start, rows)
        run_start, run = _take_csr(self.run_start, sub)
        return EdgeColumn(sub_start, run_start, self.runs.take(run))


def joined_columns(columns: Sequence[EdgeColumn]) -> EdgeColumn:
    """The rows of several columns, one behind the other."""
    sub_start = starts_of(np.concatenate([np.diff(column.sub_start) for column in columns]))
    run_start = starts_of(np.concatenate([np.diff(column.run_start) for column in columns]))
    return EdgeColumn(sub_start, run_start, concat_runs([column.runs for column in columns]))


@dataclass(frozen=True, slots=True)
class StateColumn:
    """One state field of all rows; `start` is the CSR of state vectors, else None."""

    start: np.ndarray | None
    value: np.ndarray

    def take(self, rows: np.ndarray) -> "StateColumn":
        if self.start is None:
            return StateColumn(None, self.value[rows])
        start, picked = _take_csr(self.start, rows)
        return StateColumn(start, self.value[picked])


@dataclass(frozen=True, slots=True)
class FrozenTable:
    """A vertex table as the compiler sees it: rows sorted by tile, nothing missing."""

    codelet: Codelet
    tile: np.ndarray  # int32[n]
    edges: dict[str, EdgeColumn]
    states: dict[str, StateColumn]
    estimate_cycles: np.ndarray | None  # int64[n], -1 where the user gave none
    estimate_flops: np.ndarray | None
    source_id: np.ndarray  # int32[n] into `sources`
    sources: tuple[Source, ...]

    @property
    def n_rows(self) -> int:
        return len(self.tile)


def _take_csr(start: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the parts of each row begin, and the parts, if rows come in another order."""
    all_counts = np.diff(start)
    if bool((all_counts == 1).all()):
        return counting(len(rows) + 1), rows
    counts = all_counts[rows]
    owner, within = expand(counts)
    return starts_of(counts), start[rows][owner] + within

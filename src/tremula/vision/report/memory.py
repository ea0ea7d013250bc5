"""Memory of a report: which variables are on a tile, where, and when they live."""

from dataclasses import dataclass

import numpy as np

from tremula.vision.report.packing import unpack
from tremula.vision.report.tables import ReportTables

Ints = np.ndarray


@dataclass(frozen=True, slots=True)
class LiveSet:
    """Variables that need memory somewhere, largest first."""

    variable: Ints
    n_bytes: Ints
    always_live: Ints  # bool


class ReportMemory(ReportTables):
    """Questions about memory."""

    def live_at(self, step: int, tile: int | None = None) -> LiveSet:
        """What needs memory at a step, on a tile or on all of them."""
        self.check_step(step)
        return self._live(int(self.table("steps")["instruction"][step]), tile)

    def live_at_peak(self, tile: int) -> LiveSet:
        """What needs memory at a tile's fullest moment."""
        self.check_tile(tile)
        sql = "SELECT peak_instruction FROM tiles WHERE replica = 0 AND ipu = ? AND tile = ?"
        rows = self.execute(sql, (tile // self.tiles_per_ipu, tile))
        if not rows or type(rows[0][0]) is not int:
            raise self.damaged(f"does not say when tile {tile} is fullest")
        return self._live(rows[0][0], tile)

    def _live(self, instruction: int, tile: int | None) -> LiveSet:
        always = self.column("variable.always_live").astype(bool)
        is_live = always.copy()
        first, last = self.column("live.first"), self.column("live.last")
        is_live[self.column("live.variable")[(first <= instruction) & (last >= instruction)]] = True
        if tile is None:
            variable = np.flatnonzero(is_live)
            n_bytes = self.table("variables")["n_bytes"][variable]
        else:
            variable, n_bytes = self.tile_variables(tile)
            here = is_live[variable]
            variable, n_bytes = variable[here], n_bytes[here]
        order = np.argsort(-n_bytes, kind="stable")
        return LiveSet(variable[order], n_bytes[order], always[variable[order]])

    def tile_variables(self, tile: int) -> tuple[Ints, Ints]:
        """Ids and bytes of all variables on a tile."""
        variable, n_bytes = (self._of_tile(tile, what) for what in ("variable", "n_bytes"))
        if len(variable) and (variable.max() >= self.n_variables or variable.min() < 0):
            raise self.damaged(f"names variables on tile {tile} that do not exist")
        return variable, n_bytes

    def tile_addresses(self, tile: int) -> Ints | None:
        """Where on the tile each of its variables lies; None in reports before schema 1.1."""
        return None if self.schema_version < (1, 1) else self._of_tile(tile, "address")

    def _of_tile(self, tile: int, what: str) -> Ints:
        """A packed column of `tile_variables`: one number for each variable on a tile."""
        self.check_tile(tile)
        sql = f"SELECT n_variables, {what}_dtype, {what} FROM tile_variables WHERE tile = ?"
        rows = self.execute(sql, (tile,))
        if not rows or type(rows[0][0]) is not int:
            raise self.damaged(f"does not say what is on tile {tile}")
        n, dtype, data = rows[0]
        return unpack(data, dtype, (n,), f"{what} of the variables of tile {tile}")

    def tile_bytes(self, variable: int) -> Ints:
        """int64[n_tiles]: a variable's bytes on each tile."""
        start = self.column("variable.tile_start")
        mine = slice(start[variable], start[variable + 1])
        found = np.zeros(self.n_tiles, np.int64)
        found[self.column("variable.tile")[mine]] = self.column("variable.tile_bytes")[mine]
        return found

    def variable_names(self, variables: Ints) -> list[str]:
        """Names of a few variables, without reading those of all."""
        sql = "SELECT name FROM variables WHERE id = ?"
        return [str(row[0]) for v in variables.tolist() for row in self.execute(sql, (v,))]

    def lifetimes(self, variable: int) -> Ints:
        """int64[n, 2]: first and last instruction of each stretch a temporary variable lives."""
        mine = self.column("live.variable") == variable
        return np.stack([self.column("live.first")[mine], self.column("live.last")[mine]], axis=1)

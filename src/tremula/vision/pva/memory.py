"""pva's tiles, memory by category, and liveness."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tremula.vision.pva.names import CATEGORY_OF_NAME
from tremula.vision.pva.programs import Program, VertexType, program_of_step
from tremula.vision.pva.variables import Variable
from tremula.vision.report.reader import LiveSet, ReportReader

Ints = np.ndarray


@dataclass(frozen=True)
class GapSizes:
    includingGaps: int
    excludingGaps: int


@dataclass(frozen=True)
class CategorySize:
    total: int
    alwaysLive: int
    notAlwaysLive: int


class MemoryCategories:
    """`tile.memory.category.vertexCode.total`, and so on for each of pva's names."""

    def __init__(self, reader: ReportReader, tile: int):
        self._reader, self._tile = reader, tile

    def __getattr__(self, name: str) -> CategorySize:
        if name not in CATEGORY_OF_NAME:
            raise AttributeError(
                f"no memory category {name!r}; there are {sorted(CATEGORY_OF_NAME)}"
            )
        row = self._rows.get(CATEGORY_OF_NAME[name], -1)
        if row < 0:
            return CategorySize(0, 0, 0)
        always, temporary = (
            int(self._reader.matrix(n).row(row)[self._tile]) for n in ("always_live", "temporary")
        )
        return CategorySize(always + temporary, always, temporary)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self._reader.table("categories")["name"])}

    def __dir__(self) -> list[str]:
        return sorted(CATEGORY_OF_NAME)


@dataclass(frozen=True)
class TileVertices:
    """The code of one vertex type on a tile."""

    type: VertexType
    codeBytes: int


@dataclass(frozen=True)
class TileMemory:
    _reader: ReportReader
    _tile: int

    def _of(self, column: str) -> int:
        return int(self._reader.table("tiles")[column][self._tile])

    @property
    def alwaysLiveBytes(self) -> int:
        return self._of("always_live")

    @property
    def notAlwaysLiveBytes(self) -> int:
        return self._of("temporary")

    @property
    def total(self) -> GapSizes:
        return GapSizes(self._of("including_gaps"), self._of("excluding_gaps"))

    @property
    def overflowed(self) -> GapSizes:
        return GapSizes(self._of("overflowed"), self._of("overflowed"))

    @property
    def nonInterleaved(self) -> GapSizes:
        return GapSizes(self._of("region0"), self._of("region0"))

    @property
    def interleaved(self) -> GapSizes:
        return GapSizes(self._of("region1"), self._of("region1"))

    @property
    def category(self) -> MemoryCategories:
        return MemoryCategories(self._reader, self._tile)

    @property
    def vertices(self) -> list[TileVertices]:
        """Vertex types with code on the tile."""
        tile, start = self._reader.column("vertices.tile"), self._reader.column("vertices.start")
        rows = np.searchsorted(start, np.flatnonzero(tile == self._tile), side="right") - 1
        types = np.unique(self._reader.table("vertices")["vertex_type"][rows])
        code = self._reader.table("vertex_types")["code_bytes"]
        return [TileVertices(VertexType(self._reader, t), int(code[t])) for t in types.tolist()]


@dataclass(frozen=True)
class Tile:
    _reader: ReportReader
    id: int

    @property
    def ipu(self) -> int:
        """The chip it is on."""
        return self.id // self._reader.tiles_per_ipu

    @property
    def memory(self) -> TileMemory:
        """Its memory by category."""
        return TileMemory(self._reader, self.id)

    def __repr__(self) -> str:
        return f"Tile({self.id})"


@dataclass(frozen=True)
class NotAlwaysLiveMemory:
    """Temporary memory at a step: `bytes`, and the variables they are in, largest first."""

    _reader: ReportReader
    bytes: int
    _live: LiveSet

    @property
    def variables(self) -> list[Variable]:
        """They add up to `bytes`: exchange buffers are listed as pva's `message`."""
        temporary = ~self._live.always_live
        sizes = self._live.n_bytes[temporary]
        names = self._reader.table("variables")["name"]
        result = [
            Variable(names[v], n)
            for v, n in zip(self._live.variable[temporary].tolist(), sizes.tolist(), strict=True)
        ]
        buffers = self.bytes - int(sizes.sum())
        return [*result, Variable("message", buffers)] if buffers else result

    def columns(self) -> dict[str, Ints]:
        """Ids and bytes of variables at once."""
        temporary = ~self._live.always_live
        return {"variable": self._live.variable[temporary], "bytes": self._live.n_bytes[temporary]}


@dataclass(frozen=True)
class LivenessProgramStep:
    _reader: ReportReader
    _step: int

    @property
    def program(self) -> Program:
        """The program of the step."""
        return program_of_step(self._reader, self._step)

    @property
    def notAlwaysLiveMemory(self) -> NotAlwaysLiveMemory:
        """Bytes of temporaries on all tiles."""
        n_bytes = int(self._reader.table("steps")["temporary_bytes"][self._step])
        return NotAlwaysLiveMemory(self._reader, n_bytes, self._reader.live_at(self._step))

    def notAlwaysLiveMemoryForTile(self, tile: int) -> NotAlwaysLiveMemory:
        """Bytes of temporaries on a tile."""
        live = self._reader.live_at(self._step, tile)
        n_bytes = int(self._reader.matrix("live").row(self._step)[tile])
        return NotAlwaysLiveMemory(self._reader, n_bytes, live)

    def notAlwaysLiveMemoryForIpu(self, ipu: int) -> NotAlwaysLiveMemory:
        """Bytes of temporaries on a chip."""
        per_ipu = self._reader.tiles_per_ipu
        mine = slice(ipu * per_ipu, (ipu + 1) * per_ipu)
        n_bytes = int(self._reader.matrix("live").row(self._step)[mine].sum())
        live = self._reader.live_at(self._step)
        sizes = np.array(
            [int(self._reader.tile_bytes(v)[mine].sum()) for v in live.variable.tolist()]
        )
        here = sizes > 0 if len(sizes) else np.zeros(0, bool)
        order = np.argsort(-sizes[here], kind="stable")
        live_set = LiveSet(
            live.variable[here][order], sizes[here][order], live.always_live[here][order]
        )
        return NotAlwaysLiveMemory(self._reader, n_bytes, live_set)

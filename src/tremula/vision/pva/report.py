"""pva's Report: the object model of libpva on a report file, read lazily."""

import os
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tremula.base.errors import FileLoadError, MissingProfileData
from tremula.compiler.executable.executable import Executable
from tremula.compiler.report.report import ExecutedSteps
from tremula.vision.lazy_list import LazyList
from tremula.vision.pva.execution import Execution
from tremula.vision.pva.memory import LivenessProgramStep, Tile
from tremula.vision.pva.names import (
    CATEGORY_OF_NAME,
    Architecture,
    ComputeInstrumentation,
    ExternalExchangeInstrumentation,
    TargetType,
)
from tremula.vision.pva.programs import ComputeSet, Program
from tremula.vision.pva.variables import LoweredVariables, Variable
from tremula.vision.report.reader import ReportReader, open_report
from tremula.vision.report.write import write_report

Ints = np.ndarray


@dataclass(frozen=True)
class Version:
    major: int
    minor: int
    point: int
    packageHash: str = ""
    isUnstableFormat: bool = False

    @property
    def string(self) -> str:
        return f"{self.major}.{self.minor}.{self.point}"


@dataclass(frozen=True)
class InstrumentationSettings:
    compute: ComputeInstrumentation = ComputeInstrumentation.Vertex
    externalExchange: ExternalExchangeInstrumentation = ExternalExchangeInstrumentation.Tile


@dataclass(frozen=True)
class Target:
    _reader: ReportReader

    def _fact(self, key: str) -> int:
        return int(self._reader.target[key])

    @property
    def type(self) -> TargetType:
        """Hardware, or a model of it."""
        known = {t.value: t for t in TargetType}
        return known.get(self._reader.target["type"], TargetType.Unknown)

    @property
    def architecture(self) -> Architecture:
        """The architecture's name."""
        known = {a.value: a for a in Architecture}
        return known.get(self._reader.target["arch"], Architecture.Unknown)

    @property
    def numReplicas(self) -> int:
        """Replicas of the program."""
        return self._reader.n_replicas

    @property
    def ipusPerReplica(self) -> int:
        """Chips of a replica."""
        return self._reader.n_ipus

    @property
    def numIPUs(self) -> int:
        """Chips in all."""
        return self._reader.n_ipus * self._reader.n_replicas

    @property
    def tilesPerIpu(self) -> int:
        """Tiles of a chip."""
        return self._reader.tiles_per_ipu

    @property
    def tilesPerReplica(self) -> int:
        """Tiles of a replica."""
        return self._reader.n_tiles

    @property
    def numTiles(self) -> int:
        """Tiles in all."""
        return self._reader.n_tiles * self._reader.n_replicas

    @property
    def bytesPerTile(self) -> int:
        """Memory of a tile."""
        return self._fact("n_bytes_per_tile")

    @property
    def bytesPerIPU(self) -> int:
        """Memory of a chip."""
        return self.bytesPerTile * self.tilesPerIpu

    @property
    def memoryPerReplica(self) -> int:
        """Memory of a replica."""
        return self.bytesPerTile * self.tilesPerReplica

    @property
    def totalMemory(self) -> int:
        """Memory in all."""
        return self.memoryPerReplica * self.numReplicas

    @property
    def clockFrequency(self) -> float:
        """Hertz of the tiles."""
        return float(self._reader.target["clock_hz"])

    @property
    def minSyncDelay(self) -> int:
        """The least cycles of a sync."""
        return self._fact("sync_cycles")

    @property
    def relativeSyncDelayByTile(self) -> Ints:
        """All zero: sync reaches all tiles at the same time here."""
        return np.zeros(self._reader.n_tiles, np.int64)


@dataclass(frozen=True)
class Graph:
    numComputeSets: int
    numEdges: int
    numVars: int
    numVertices: int


@dataclass(frozen=True)
class Ipu:
    _reader: ReportReader
    id: int

    @property
    def tiles(self) -> LazyList[Tile]:
        first = self.id * self._reader.tiles_per_ipu
        return LazyList(self._reader.tiles_per_ipu, lambda i: Tile(self._reader, first + i))


@dataclass(frozen=True)
class Compilation:
    _reader: ReportReader

    def __call__(self) -> "Compilation":
        """C++ writes `report.compilation()`."""
        return self

    @property
    def target(self) -> Target:
        """The machine it was compiled for."""
        return Target(self._reader)

    @property
    def graph(self) -> Graph:
        """Sizes of the graph."""
        info = self._reader.info
        names = ("n_compute_sets", "n_edges", "n_variables", "n_vertices")
        return Graph(*(int(info[name]) for name in names))

    @property
    def ipus(self) -> LazyList[Ipu]:
        """Chips, with their tiles."""
        return LazyList(self._reader.n_ipus, lambda i: Ipu(self._reader, i))

    @property
    def tiles(self) -> LazyList[Tile]:
        """Tiles of all chips."""
        return LazyList(self._reader.n_tiles, lambda i: Tile(self._reader, i))

    @property
    def computeSets(self) -> LazyList[ComputeSet]:
        """Compute sets with their vertices."""
        n = len(self._reader.table("compute_sets")["id"])
        return LazyList(n, lambda i: ComputeSet(self._reader, i))

    @property
    def programs(self) -> LazyList[Program]:
        """Every node of every tree."""
        n = len(self._reader.table("programs")["id"])
        return LazyList(n, lambda i: Program(self._reader, i))

    @property
    def controlPrograms(self) -> list[Program]:
        """Programs the host can run, as trees; functions stand under their calls."""
        table = self._reader.table("programs")
        pairs = zip(table["root"], table["parent"].tolist(), strict=True)
        rows = [i for i, (r, above) in enumerate(pairs) if above < 0 and r.startswith("program:")]
        return [Program(self._reader, row) for row in rows]

    @property
    def functionPrograms(self) -> list[Program]:
        """Programs of functions, as trees: each as its first call runs it."""
        table = self._reader.table("programs")
        parent, kind = table["parent"].tolist(), table["kind"]
        result: dict[str, int] = {}
        for row, above in enumerate(parent):
            is_called = above >= 0 and kind[above] == "Call"
            if is_called or (above < 0 and table["root"][row].startswith("function:")):
                result.setdefault(table["name"][row], row)
        return [Program(self._reader, row) for row in result.values()]

    @property
    def livenessProgramSteps(self) -> LazyList[LivenessProgramStep]:
        """Steps with what is live in each."""
        return LazyList(self._reader.n_steps, lambda i: LivenessProgramStep(self._reader, i))

    @property
    def alwaysLiveVariables(self) -> list[Variable]:
        """Of all tiles: variables, and code and other categories under pva's names."""
        variables, categories = self._reader.table("variables"), self._reader.table("categories")
        mine = np.flatnonzero(variables["always_live"])
        result = [(variables["name"][v], int(variables["n_bytes"][v])) for v in mine.tolist()]
        sizes = zip(categories["name"], categories["always_live"].tolist(), strict=True)
        return _with_categories(result, dict(sizes))

    def alwaysLiveVariablesForTile(self, tile: int) -> list[Variable]:
        """Variables that are always live on a tile."""
        variable, n_bytes = self._reader.tile_variables(tile)
        always = self._reader.table("variables")["always_live"][variable] > 0
        names = self._reader.table("variables")["name"]
        result = [
            (names[v], n)
            for v, n in zip(variable[always].tolist(), n_bytes[always].tolist(), strict=True)
        ]
        category = self._reader.table("categories")["name"]
        sizes = self._reader.matrix("always_live").rows(0, len(category))[:, tile].tolist()
        return _with_categories(result, dict(zip(category, sizes, strict=True)))

    @property
    def loweredVariables(self) -> LoweredVariables:
        """Every variable, in parts by tile."""
        return LoweredVariables(self._reader)

    # -- everything at once ------------------------------------------------------------------------

    def memoryByTile(self) -> dict[str, Ints]:
        """int64[n_tiles] columns: alwaysLive, notAlwaysLive, includingGaps, …"""
        tiles = self._reader.table("tiles")
        return {
            "alwaysLive": tiles["always_live"],
            "notAlwaysLive": tiles["temporary"],
            "includingGaps": tiles["including_gaps"],
            "excludingGaps": tiles["excluding_gaps"],
            "overflowed": tiles["overflowed"],
        }

    def memoryByCategory(self) -> dict[str, Ints]:
        """int64[n_tiles] for each of pva's categories that exists here."""
        names = self._reader.table("categories")["name"]
        n = len(names)
        both = sum(self._reader.matrix(m).rows(0, n) for m in ("always_live", "temporary"))
        of_name = {name: row for row, name in enumerate(names)}
        return {
            name: both[of_name[ours]]  # pyright: ignore[reportIndexIssue]
            for name, ours in CATEGORY_OF_NAME.items()
            if ours in of_name
        }

    def notAlwaysLiveByStep(self) -> Ints:
        """int64[n_steps]: bytes of all tiles."""
        return self._reader.table("steps")["temporary_bytes"]

    def largestLiveAtPeak(self, tile: int, n: int = 10) -> list[Variable]:
        """The largest variables on a tile at its fullest moment."""
        live = self._reader.live_at_peak(tile)
        names = self._reader.variable_names(live.variable[:n])
        return [Variable(*pair) for pair in zip(names, live.n_bytes[:n].tolist(), strict=True)]


def _with_categories(variables: list[tuple[str, int]], sizes: dict[str, int]) -> list[Variable]:
    """Variables, and what is neither variable nor constant, largest first."""
    other = {ours: name for name, ours in CATEGORY_OF_NAME.items() if ours}
    variables += [
        (other[ours], size)
        for ours, size in sizes.items()
        if size and ours not in ("Variables", "Constants")
    ]
    return [Variable(name, size) for name, size in sorted(variables, key=lambda pair: -pair[1])]


@dataclass(frozen=True)
class Report:
    """What `openReport` returns. `reader` has everything as columns, which is faster."""

    reader: ReportReader

    @property
    def compilation(self) -> Compilation:
        """What the compiler knows: memory, programs, variables."""
        return Compilation(self.reader)

    @property
    def execution(self) -> Execution:
        """What ran, and how long it took."""
        if not self.reader.has_run:
            raise MissingProfileData(
                f"report {str(self.reader.path)!r} has no execution: nothing had run.",
                hint="run the program with autoReport.all; `compilation` is there already",
            )
        return Execution(self.reader)

    @property
    def instrumentationSettings(self) -> InstrumentationSettings:
        """What was measured."""
        return InstrumentationSettings()

    @property
    def poplarVersion(self) -> Version:
        """The version of Tremula that wrote the report."""
        parts = [int(p) if p.isdigit() else 0 for p in self.reader.versions["tremula"].split(".")]
        major, minor, point = [*parts, 0, 0, 0][:3]
        return Version(major, minor, point)

    @property
    def version(self) -> Version:
        """The version of the file's schema."""
        major, minor = self.reader.schema_version
        return Version(major, minor, 0)

    def listPrintLength(self, n: int) -> None:
        """How many items of a list are printed."""
        LazyList.print_length = n

    def frame(self, table: str):  # noqa: ANN201 - a pandas.DataFrame, which is optional
        """A table of the report as a pandas DataFrame."""
        try:
            import pandas as pd  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise MissingProfileData(
                "pandas is not installed, so there are no data frames.",
                hint=f"pip install pandas, or use report.reader.table({table!r}): NumPy columns",
            ) from None
        return pd.DataFrame(self.reader.table(table))

    def _repr_html_(self) -> str:
        return self.reader._repr_html_()


def report_of(executable: Executable, execution: ExecutedSteps | None) -> Report:
    """The report of what an engine knows; its file goes when the report does."""
    folder = tempfile.mkdtemp(prefix="tremula-report-")
    report = Report(open_report(write_report(folder, executable, execution)))
    weakref.finalize(report.reader, shutil.rmtree, folder, ignore_errors=True)
    return report


def openReport(
    profile: str | os.PathLike[str], debugInfo: str | os.PathLike[str] | None = None
) -> Report:
    """Open a report. Names and lines are in it, so `debugInfo` is only checked to exist."""
    if debugInfo is not None and not Path(debugInfo).exists():
        raise FileLoadError(
            f"there is no debug information {str(debugInfo)!r}.", hint="leave it out"
        )
    return Report(open_report(profile))

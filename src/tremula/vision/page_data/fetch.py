"""Everything the page can fetch, by name: a finite list, so an export can hold it all."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from tremula.base.errors import MissingProfileData, PoplarError
from tremula.base.version import VERSION
from tremula.vision.analysis.compare import compare
from tremula.vision.analysis.insights import insights
from tremula.vision.analysis.quantities import quantity_facts
from tremula.vision.analysis.summary import summary
from tremula.vision.page_data import dataflow, memory, sql, traffic
from tremula.vision.page_data import time as times
from tremula.vision.page_data.differences import DifferenceBlocks
from tremula.vision.page_data.heat_blocks import KINDS, HeatBlocks, heat_shape
from tremula.vision.page_data.pack import pack_of, unpack_pack
from tremula.vision.page_data.trace_file import exported_names, trace_file_pack
from tremula.vision.report.reader import ReportReader, open_report
from tremula.vision.report.recent_values import RecentValues
from tremula.vision.report.schema import report_to_read

if TYPE_CHECKING:  # costing a program again needs the compiler, looking at a report does not
    from tremula.vision.page_data.whatif import Points

_MOST_PACKS = 512
_MOST_PAIRS = 12  # of reports, in an export
Stamp = tuple[int, int, int]
_N_TOP = 10


def summary_pack(reader: ReportReader) -> bytes:
    facts = summary(reader)
    facts["path"] = _title(reader)
    facts["insights"] = insights(reader)
    types, steps = reader.table("vertex_types"), reader.table("steps")
    facts["vertex_types"] = _largest(types, "cycles")
    moved = {n: steps[n] for n in ("id", "path", "bytes_in", "exchange", "executed", "source")}
    facts["exchanges"] = _largest(moved, "bytes_in")
    ipus = reader.table("ipus")
    facts["ipus"] = [{n: c[i] for n, c in ipus.items()} for i in range(len(ipus["ipu"]))]
    used = reader.table("tiles")["including_gaps"]
    facts["fullest_tiles"] = [
        {"tile": tile, "n_bytes": used[tile]} for tile in (-used).argsort(kind="stable")[:_N_TOP]
    ]
    return pack_of(facts)


def _largest(columns: dict, name: str) -> list[dict[str, object]]:
    order = (-columns[name]).argsort(kind="stable")[:_N_TOP]
    return [{n: c[i] for n, c in columns.items()} for i in order.tolist()]


def _title(reader: ReportReader) -> str:
    """The file's name, or its folder's where that says more; never a whole path."""
    path = reader.path.resolve()
    return path.parent.name if path.name == "profile.pop" and path.parent.name else path.name


def _titles(readers: Sequence[ReportReader]) -> list[str]:
    """Titles of reports; equal ones get the name of the folder above in front."""
    titles = [_title(reader) for reader in readers]
    above = [reader.path.resolve().parent.parent.name for reader in readers]
    return [
        f"{folder}/{title}" if folder and titles.count(title) > 1 else title
        for folder, title in zip(above, titles, strict=True)
    ]


def stamp(path: Path) -> Stamp | None:
    """What changes when a file is written again; None if there is none."""
    try:
        result = report_to_read(path).stat()
    except OSError:
        return None
    return result.st_ino, result.st_mtime_ns, result.st_size


# Packs of one report: single ones, and those that come in parts.
SINGLE: dict[str, Callable[[ReportReader], bytes]] = {
    "summary": summary_pack,
    "tiles": memory.tiles_pack,
    "variables": memory.variables_pack,
    "liveness": memory.liveness_pack,
    "steps": times.steps_pack,
    "vertices": times.vertices_pack,
    "tree": times.tree_pack,
    "overview": times.overview_pack,
    "stages": times.stages_pack,
    "host": times.host_pack,
    "dataflow": dataflow.dataflow_pack,
    "traffic": traffic.traffic_pack,
}
PARTS: dict[str, Callable[[ReportReader, int], bytes | None]] = {
    "tile-contents": memory.tile_contents_pack,
    "variable-tiles": memory.variable_tiles_pack,
    "step-live": memory.step_live_pack,
    "trace": times.trace_pack,
    "step-tiles": times.step_tiles_pack,
    "traffic": traffic.step_traffic_pack,
}


@dataclass
class PageData:
    """The reports of one page, and a cache of their packs."""

    readers: Sequence[ReportReader]
    stamps: list[Stamp | None] = field(default_factory=list)
    generation: int = 0  # how often the files were opened again
    _packs: RecentValues[str, bytes] = field(default_factory=lambda: RecentValues(_MOST_PACKS))
    _lock: Lock = field(default_factory=Lock)
    _heat: dict[tuple[int, ...], HeatBlocks] = field(default_factory=dict)
    # By report: its program, or why it has none. One sweep at a time: a moving slider asks often.
    _programs: "dict[int, Points | str]" = field(default_factory=dict)
    _programs_lock: Lock = field(default_factory=Lock)

    @classmethod
    def of_files(cls, paths: Sequence[Path], generation: int = 0) -> "PageData":
        """Opens reports. Their stamps are taken before, so nothing written later is missed."""
        stamps = [stamp(path) for path in paths]
        with ExitStack() as stack:
            readers = [stack.enter_context(open_report(path)) for path in paths]
            stack.pop_all()  # all are open: they stay so
        return cls(readers, stamps, generation)

    def __post_init__(self) -> None:
        if not self.stamps:
            self.stamps = [stamp(reader.path) for reader in self.readers]

    def newer(self) -> list[str]:
        """Titles of reports whose files were written again since they were opened."""
        result = zip(_titles(self.readers), self.stamps_now(), self.stamps, strict=True)
        return [title for title, now, then in result if now is not None and now != then]

    def stamps_now(self) -> list[Stamp | None]:
        return [stamp(reader.path) for reader in self.readers]

    def renewed(self) -> "PageData":
        """Page data of the same files, opened again."""
        return PageData.of_files([reader.path for reader in self.readers], self.generation + 1)

    def close(self) -> None:
        for reader in self.readers:
            reader.close()

    def pack(self, name: str) -> bytes:
        """The pack of a name; raises MissingProfileData if there is none."""
        return self._packs.get(name, lambda: self._made(name))

    def _made(self, name: str) -> bytes:
        parts = name.split("/")
        if name == "index":
            return self.index_pack()
        if parts[0] == "compare":
            return self._compare(parts[1:])
        number = _whole(parts[0])
        if number is None or number >= len(self.readers) or len(parts) < 2:
            raise _unknown(name)
        if parts[1] == "whatif":
            return self._whatif(number, parts[2:])
        if parts[1] == "heat":
            with self._lock:
                blocks = self._heat.setdefault((number,), HeatBlocks(self.readers[number]))
            return _block(blocks, parts[2:], name)
        if parts[1] == "sql":
            return self._sql(self.readers[number], name.split("/", 2)[2:])
        if parts[1] == "trace-file":
            title = _titles(self.readers)[number].replace("/", "-")
            return trace_file_pack(self.readers[number], title, parts[2:])
        if parts[1] == "difference":
            return self._difference(number, parts[2:], name)
        pack = _report_pack(self.readers[number], parts[1], parts[2:])
        if pack is None:
            raise _unknown(name)
        return pack

    def _sql(self, reader: ReportReader, query: list[str]) -> bytes:
        """The tables to ask, or the answer to a question; not in an export."""
        return sql.answer_pack(reader, query[0]) if query else sql.schema_pack(reader)

    def _compare(self, numbers: list[str]) -> bytes:
        """What differs between any two reports."""
        pair = [n for n in map(_whole, numbers) if n is not None and n < len(self.readers)]
        if len(numbers) != 2 or len(pair) != 2:
            raise _unknown(f"compare/{'/'.join(numbers)}")
        return pack_of(compare(self.readers[pair[0]], self.readers[pair[1]]))

    def _difference(self, number: int, parts: list[str], name: str) -> bytes:
        """A heat map's block of another report minus this one, or what such blocks mean."""
        other = _whole(parts[0]) if parts else None
        if other is None or other >= len(self.readers):
            raise _unknown(name)
        with self._lock:
            key = number, other
            if key not in self._heat:
                self._heat[key] = DifferenceBlocks(self.readers[number], self.readers[other])
            blocks = self._heat[key]
        if len(parts) == 1 and isinstance(blocks, DifferenceBlocks):
            return pack_of(blocks.facts(), blocks.columns())
        return _block(blocks, parts[1:], name)

    def _whatif(self, number: int, sweep: list[str]) -> bytes:
        """What can be varied, or the points of a sweep: the one thing computed on demand."""
        from tremula.vision.page_data import whatif

        with self._programs_lock:
            program = self._program(number)
            if not sweep:
                why_not = program if isinstance(program, str) else ""
                return pack_of(whatif.whatif_facts(self.readers[number], why_not))
            if isinstance(program, str):
                raise MissingProfileData(program)
            return program.pack(sweep)

    def progress(self) -> dict[str, int]:
        """How far the sweep is that is being computed."""
        under_way = [p for p in list(self._programs.values()) if not isinstance(p, str)]
        return {
            "n_done": sum(p.n_done for p in under_way),
            "n_asked": sum(p.n_asked for p in under_way),
        }

    def _program(self, number: int) -> "Points | str":
        from tremula.vision.analysis.whatif import RecostableProgram
        from tremula.vision.page_data.whatif import Points

        if number not in self._programs:
            try:
                self._programs[number] = Points(RecostableProgram(self.readers[number]))
            except PoplarError as error:
                self._programs[number] = str(error)
        return self._programs[number]

    def index_pack(self, problem: str = "") -> bytes:
        """What a page loads first; `problem` says why newer reports could not be opened."""
        reports = [
            {
                "title": title,
                "chip": reader.target.get("chip"),
                "n_ipus": reader.n_ipus,
                "n_tiles": reader.n_tiles,
                "n_steps": reader.n_steps,
                "has_run": reader.has_run,
                "n_stages": int((reader.info.get("timeline") or {}).get("n_stages", 0)),
                "total_cycles": reader.info.get("total_cycles"),
            }
            for reader, title in zip(self.readers, _titles(self.readers), strict=True)
        ]
        return pack_of(
            {
                "reports": reports,
                "quantities": quantity_facts(),
                "version": VERSION,
                "generation": self.generation,
                "problem": problem,
            }
        )

    def names(self) -> Iterator[str]:
        """All names but those of sweeps, the most needed first: an export takes as many as fit."""
        yield "index"
        numbers = range(len(self.readers))
        yield from (f"{i}/{name}" for i in numbers for name in SINGLE)
        for i in numbers:
            yield from (f"{i}/traffic/{step}" for step in traffic.busiest_steps(self.readers[i]))
        pairs = [(i, k) for i in numbers for k in numbers if i != k][:_MOST_PAIRS]
        yield from (f"compare/{i}/{k}" for i, k in pairs)
        for i in numbers:
            yield from (f"{i}/{name}" for name in _heat_names(self.readers[i], is_coarse=True))
        for i, k in pairs:
            yield f"{i}/difference/{k}"
            if not self._why_not_compared(i, k):
                coarse = _heat_names(self.readers[i], is_coarse=True)
                yield from (f"{i}/difference/{k}/{name.removeprefix('heat/')}" for name in coarse)
        for i in numbers:
            yield from (f"{i}/{name}" for name in exported_names(self.readers[i]))
            yield from (f"{i}/{name}" for name in _part_names(self.readers[i]))
        for i in numbers:
            yield from (f"{i}/{name}" for name in _heat_names(self.readers[i], is_coarse=False))

    def _why_not_compared(self, number: int, other: int) -> str:
        return unpack_pack(self.pack(f"{number}/difference/{other}"))[0]["why_not"]

    def sweep_names(self, number: int) -> Iterator[str]:
        """What the What-if view of a report fetches: computed, so it takes longer than others."""
        yield f"{number}/whatif"
        sweeps = unpack_pack(self.pack(f"{number}/whatif"))[0]["sweeps"]
        yield from (f"{number}/whatif/{sweep}" for sweep in sweeps)


def _block(blocks: HeatBlocks, place: list[str], name: str) -> bytes:
    whole = [n for n in map(_whole, place[1:]) if n is not None]
    if len(place) != 5 or len(whole) != 4 or place[0] not in KINDS:
        raise _unknown(name)
    return blocks.block(place[0], *whole)


def _report_pack(reader: ReportReader, name: str, rest: list[str]) -> bytes | None:
    numbers = [_whole(part) for part in rest]
    if name in SINGLE and not rest:
        return SINGLE[name](reader)
    if name in PARTS and len(numbers) == 1 and numbers[0] is not None:
        return PARTS[name](reader, numbers[0])
    return None


def _part_names(reader: ReportReader) -> Iterator[str]:
    n_shown = len(memory.shown_variables(reader))
    for name, n_parts in (
        ("trace", -(-reader.n_entries // times.ENTRIES_PER_PART)),
        ("tile-contents", -(-reader.n_tiles // memory.TILES_PER_PART)),
        ("variable-tiles", -(-n_shown // memory.VARIABLES_PER_PART)),
        ("step-live", -(-reader.n_steps // memory.STEPS_PER_PART)),
        ("step-tiles", reader.n_steps),
    ):
        yield from (f"{name}/{part}" for part in range(n_parts))


def _heat_names(reader: ReportReader, *, is_coarse: bool) -> Iterator[str]:
    """Blocks from the coarsest level to the finest; the coarsest alone, or all others."""
    for kind in KINDS:
        shape = heat_shape(reader, kind)
        for level in range(shape.n_levels - 1, -1, -1):
            # Blocks of the same columns follow each other: they are cut from the same rows.
            for column in range(shape.blocks(level, 0)[0]):
                for tile_level in range(shape.n_tile_levels - 1, -1, -1):
                    last = (shape.n_levels - 1, shape.n_tile_levels - 1)
                    if ((level, tile_level) == last) == is_coarse:
                        place = f"heat/{kind}/{level}/{tile_level}/{column}"
                        n_rows = shape.blocks(level, tile_level)[1]
                        yield from (f"{place}/{row}" for row in range(n_rows))


def _whole(text: str) -> int | None:
    """A number in a name: up to 9 digits and nothing else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _unknown(name: str) -> MissingProfileData:
    return MissingProfileData(
        f"the page has no data {name[:80]!r}.", hint=f"names are index, 0/{', 0/'.join(SINGLE)}, …"
    )

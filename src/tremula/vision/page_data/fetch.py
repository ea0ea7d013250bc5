"""Everything the page can fetch, by name: a finite list, so an export can hold it all."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from tremula.base.errors import MissingProfileData, PoplarError
from tremula.base.version import VERSION
from tremula.vision.analysis.compare import compare
from tremula.vision.analysis.insights import insights
from tremula.vision.analysis.summary import summary
from tremula.vision.page_data import memory
from tremula.vision.page_data import time as times
from tremula.vision.page_data.heat_blocks import KINDS, heat_block, heat_shape
from tremula.vision.page_data.pack import pack_of, unpack_pack
from tremula.vision.report.reader import ReportReader

if TYPE_CHECKING:  # costing a program again needs the compiler, looking at a report does not
    from tremula.vision.analysis.whatif import TileProgram

_KEPT_PACKS = 512
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
    "host": times.host_pack,
}
PARTS: dict[str, Callable[[ReportReader, int], bytes | None]] = {
    "tile-contents": memory.tile_contents_pack,
    "variable-tiles": memory.variable_tiles_pack,
    "step-live": memory.step_live_pack,
    "trace": times.trace_pack,
    "step-tiles": times.step_tiles_pack,
}


@dataclass
class PageData:
    """The reports of one page, and a cache of their packs."""

    readers: Sequence[ReportReader]
    _kept: dict[str, bytes] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    # By report: its program, or why it has none. One sweep at a time: a moving slider asks often.
    _programs: "dict[int, TileProgram | str]" = field(default_factory=dict)
    _programs_lock: Lock = field(default_factory=Lock)

    def pack(self, name: str) -> bytes:
        """The pack of a name; raises MissingProfileData if there is none."""
        with self._lock:
            if name in self._kept:
                return self._kept[name]
        pack = self._made(name)
        with self._lock:
            while len(self._kept) >= _KEPT_PACKS:
                del self._kept[next(iter(self._kept))]
            self._kept[name] = pack
        return pack

    def _made(self, name: str) -> bytes:
        parts = name.split("/")
        if name == "index":
            return self._index()
        if name == "compare" and len(self.readers) > 1:
            return pack_of(compare(*self.readers[:2]))
        number = _whole(parts[0])
        if number is None or number >= len(self.readers) or len(parts) < 2:
            raise _unknown(name)
        if parts[1] == "whatif":
            return self._whatif(number, parts[2:])
        pack = _report_pack(self.readers[number], parts[1], parts[2:])
        if pack is None:
            raise _unknown(name)
        return pack

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
            return whatif.points_pack(program, sweep)

    def _program(self, number: int) -> "TileProgram | str":
        from tremula.vision.analysis.whatif import TileProgram

        if number not in self._programs:
            try:
                self._programs[number] = TileProgram(self.readers[number])
            except PoplarError as error:
                self._programs[number] = str(error)
        return self._programs[number]

    def _index(self) -> bytes:
        reports = [
            {
                "title": title,
                "chip": reader.target.get("chip"),
                "n_ipus": reader.n_ipus,
                "n_tiles": reader.n_tiles,
                "n_steps": reader.n_steps,
                "has_run": reader.has_run,
                "total_cycles": reader.info.get("total_cycles"),
            }
            for reader, title in zip(self.readers, _titles(self.readers), strict=True)
        ]
        return pack_of({"reports": reports, "version": VERSION})

    def names(self) -> Iterator[str]:
        """All names, the most needed first: an export takes as many as fit."""
        yield "index"
        if len(self.readers) > 1:
            yield "compare"
        numbers = range(len(self.readers))
        yield from (f"{i}/{name}" for i in numbers for name in SINGLE)
        for i in numbers:
            yield from (f"{i}/{name}" for name in _heat_names(self.readers[i], is_coarse=True))
        for i in numbers:
            yield f"{i}/whatif"
            sweeps = unpack_pack(self.pack(f"{i}/whatif"))[0]["sweeps"]
            yield from (f"{i}/whatif/{sweep}" for sweep in sweeps)
        for i in numbers:
            yield from (f"{i}/{name}" for name in _part_names(self.readers[i]))
        for i in numbers:
            yield from (f"{i}/{name}" for name in _heat_names(self.readers[i], is_coarse=False))


def _report_pack(reader: ReportReader, name: str, rest: list[str]) -> bytes | None:
    numbers = [_whole(part) for part in rest]
    if name in SINGLE and not rest:
        return SINGLE[name](reader)
    if name in PARTS and len(numbers) == 1 and numbers[0] is not None:
        return PARTS[name](reader, numbers[0])
    if name == "heat" and len(rest) == 5 and rest[0] in KINDS:
        whole = [n for n in numbers[1:] if n is not None]
        return heat_block(reader, rest[0], *whole) if len(whole) == 4 else None
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
        for tile_level in range(shape.n_tile_levels - 1, -1, -1):
            for level in range(shape.n_levels - 1, -1, -1):
                is_coarsest = (level, tile_level) == (shape.n_levels - 1, shape.n_tile_levels - 1)
                if is_coarsest != is_coarse:
                    continue
                n_columns, n_rows = shape.blocks(level, tile_level)
                for column in range(n_columns):
                    yield from (
                        f"heat/{kind}/{level}/{tile_level}/{column}/{row}" for row in range(n_rows)
                    )


def _whole(text: str) -> int | None:
    """A number in a name: up to 9 digits and nothing else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _unknown(name: str) -> MissingProfileData:
    return MissingProfileData(
        f"the page has no data {name[:80]!r}.", hint=f"names are index, 0/{', 0/'.join(SINGLE)}, …"
    )

"""Damages reports and traces at random and reads all of them: only errors that say so may come."""

import inspect
import random
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path

import numpy as np

import pva
from tremula.base.errors import PoplarError
from tremula.vision.analysis.summary import VIEWS
from tremula.vision.analysis.text_views import text_of_view
from tremula.vision.page_data.fetch import PageData
from tremula.vision.report.reader import open_report
from tremula.vision.report.schema import FILE_NAME
from tremula.vision.report.seal import seal
from tremula.vision.trace.beside_report import host_columns
from tremula.vision.trace.export import export_chrome, export_csv, export_perfetto

_SECTOR_BYTES, _PAGE_BYTES = 512, 4096
_MOST_PACKS = 60
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """What reading damaged files came to."""

    n_read: int  # nothing was noticed: all of it was read
    n_refused: int
    escapes: tuple[str, ...]  # tracebacks of anything but our own errors


def fuzz(
    path: Path,
    n: int,
    read: Callable[[Path], None],
    *,
    seed: int = 0,
    is_sealed_again: bool = False,
) -> Outcome:
    """Read `n` damaged copies of a file, each in its place; at the end it is as it was.

    `is_sealed_again`: a few bytes of a report are changed and its checksum is made right again, as
    by an attacker.
    """
    content = path.read_bytes()
    n_read = n_refused = 0
    escapes: list[str] = []
    try:
        for number in range(n):
            chance = random.Random(f"{seed} {number}")
            path.write_bytes((_changed if is_sealed_again else damaged)(content, chance))
            if is_sealed_again:
                seal(path)
            try:
                read(path)
                n_read += 1
            except PoplarError:
                n_refused += 1
            except Exception:  # noqa: BLE001 - what is looked for
                escapes.append(f"mutation {number} of seed {seed}:\n{traceback.format_exc()}")
    finally:
        path.write_bytes(content)
    return Outcome(n_read, n_refused, tuple(escapes))


def damaged(content: bytes, chance: random.Random) -> bytes:
    """A file with something wrong in it: as transfers, disks and full file systems leave them."""
    result = content
    while result == content:
        harm = chance.choice((_changed, _changed, _changed, _cut, _extended, _blanked, _misplaced))
        result = harm(content, chance)
    return result


def _changed(content: bytes, chance: random.Random) -> bytes:
    """A few bytes are other ones."""
    result = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4, 16, 64))):
        result[chance.randrange(len(result))] = chance.randrange(256)
    return bytes(result)


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def _extended(content: bytes, chance: random.Random) -> bytes:
    return content + chance.randbytes(chance.choice((1, 100, _PAGE_BYTES)))


def _blanked(content: bytes, chance: random.Random) -> bytes:
    """A sector that was never written."""
    at = chance.randrange(max(1, len(content) // _SECTOR_BYTES)) * _SECTOR_BYTES
    return content[:at] + bytes(_SECTOR_BYTES) + content[at + _SECTOR_BYTES :]


def _misplaced(content: bytes, chance: random.Random) -> bytes:
    """A page in the place of another."""
    n_pages = max(1, len(content) // _PAGE_BYTES)
    to, source = (chance.randrange(n_pages) * _PAGE_BYTES for _ in range(2))
    page = content[source : source + _PAGE_BYTES]
    return content[:to] + page + content[to + len(page) :]


# -- reading everything ----------------------------------------------------------------------------


def read_report(path: Path) -> None:
    """All of a report: every text view, what the page fetches, and pva's objects."""
    with open_report(path) as reader:
        for name, view in VIEWS.items():
            text_of_view(name, view(reader), 0)
        data = PageData([reader])
        for name in _spread([*data.names()], _MOST_PACKS):
            data.pack(name)
    opened = pva.openReport(path)
    try:
        walk(opened)
    finally:
        opened.reader.close()


def read_trace(path: Path) -> None:
    """All of a trace: its columns, pva's objects, what other tools and the Host view get."""
    with pva.openTrace(path) as trace:
        walk(trace)
        for name in ("channels", "labels", "thread_names", "details", "series", "heatmaps"):
            getattr(trace, name)
        for export in (export_chrome, export_perfetto, export_csv):
            export(path.with_suffix(".exported"), trace)
    if (path.parent / FILE_NAME).exists():
        with open_report(path.parent) as reader:
            host_columns(reader)


def walk(root: object) -> None:
    """Follow everything that can be reached from one of pva's objects without knowing its name."""
    _walk(root, _DEEPEST, set())


def _walk(item: object, n_deeper: int, seen: set) -> None:
    if isinstance(item, Sequence) and not isinstance(item, str | bytes | np.ndarray):
        for one in _spread(item, 3):
            _walk(one, n_deeper, seen)
    elif n_deeper and type(item).__module__.startswith("tremula.vision") and _is_new(item, seen):
        repr(item)
        for value in _reached(item):
            _walk(value, n_deeper - 1, seen)


def _is_new(item: object, seen: set) -> bool:
    key = repr(item) if is_dataclass(item) else str(id(item))
    known = (type(item), key) in seen
    seen.add((type(item), key))
    return not known


def _reached(item: object) -> Iterator[object]:
    """Values of public attributes, and results of methods that need at most a tile's number."""
    for name in dir(item):
        if name.startswith("_") or name in _LEFT_OUT:
            continue
        value = getattr(item, name, None)  # pva's objects lack what their kind does not have
        if not inspect.ismethod(value):
            yield value
            continue
        needed = [p for p in inspect.signature(value).parameters.values() if p.default is p.empty]
        if not needed:
            yield value()
        elif [p.name for p in needed] == ["tile"]:
            yield value(0)


# Not about a report's content: `frame` needs pandas, the others would end or change the reading.
_LEFT_OUT = frozenset({"close", "damaged", "execute", "frame", "listPrintLength", "lock", "reader"})


def _spread(items: Sequence, n: int) -> list:
    """At most about n of them, from the first to the last."""
    step = max(1, -(-len(items) // n))
    return [*items[::step], *items[-1:]]

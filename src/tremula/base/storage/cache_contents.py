"""What is in the cache folder: kinds of files, which of them are damaged, and removing them.

A file counts only if its name has the form of its kind. Everything else in the folder, which a user
may have chosen for other purposes too, is left alone.
"""

import hashlib
import json
import re
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tremula.base.storage.cache_dir import cache_dir
from tremula.base.storage.checked_file import DAY_S, is_whole

_HEX = "[0-9a-f]"
_UNFINISHED_S = 3600  # a file that is still being written is younger


@dataclass(frozen=True, slots=True)
class CacheKind:
    """One folder of the cache."""

    name: str
    content: str
    pattern: str  # of the names of its files, below its folder
    is_remade: bool = True  # without the network, when it is needed again


KINDS = (
    CacheKind("native", "machine code of Python codelets and of Tremula", r"[\w.]+-\w+\.nbc"),
    CacheKind(
        "codelets", "texts and analyses of Python codelets",
        rf"(kernel|analysis)_{_HEX}{{32}}\.(py|json)|__pycache__/kernel_\w+\.[\w.-]+",
    ),
    CacheKind("cpp", "machine code of C++ codelets", rf"{_HEX}{{32}}[\w.-]*\.(so|json)"),
    CacheKind("loops", "machine code of loops over columns", rf"{_HEX}{{32}}\.so"),
    CacheKind("rows", "kernels for GPUs, and which is the fastest", r"rows_\w+\.(py|json)"),
    CacheKind(
        "compiled", "steps that Inductor compiled", rf"{_HEX}{{32}}\.json|{_HEX}{{64}}\.(cubin|so)"
    ),
    CacheKind("sweeps", "results of `tremula sweep`", rf"{_HEX}{{32}}\.(json|so)"),
    CacheKind("plans", "results of `tremula plan`", rf"{_HEX}{{32}}\.json"),
    CacheKind("demo", "the report of `tremula demo`", r"[\w.-]+\.(pop|pop_cache|json|pvti|txt)"),
    CacheKind("data", "data sets that were fetched", r"[\w.-]+\.(npz|tgz)", is_remade=False),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class CacheFile:
    """A file of the cache."""

    path: Path
    n_bytes: int
    used: float  # seconds since the epoch, to a day


def files_of(kind: CacheKind) -> list[CacheFile]:
    """The files of a kind, the longest unused first, with those that a process left unfinished."""
    folder, name = cache_dir() / kind.name, re.compile(kind.pattern)
    unfinished = re.compile(rf"\.({kind.pattern})\.\w+\.part")
    result = []
    for path in folder.rglob("*"):
        text = path.relative_to(folder).as_posix()
        with suppress(FileNotFoundError):  # another process removed it
            if not path.is_file() or path.is_symlink():
                continue
            status = path.stat()
            is_left = time.time() - status.st_mtime > _UNFINISHED_S and unfinished.fullmatch(text)
            if name.fullmatch(text) or is_left:
                result.append(CacheFile(path, status.st_size, status.st_mtime))
    return sorted(result, key=lambda file: (file.used, file.path))


def damaged_files() -> Iterator[CacheFile]:
    """The files that would be made again when they are needed, since they are not whole."""
    for kind in KINDS:
        yield from (file for file in files_of(kind) if not _is_readable(file.path))


def _is_readable(path: Path) -> bool:
    if path.name.endswith(".part"):
        return False
    if path.parent.name == "__pycache__":
        return True  # of an earlier version, which is not read any more
    match path.suffix:
        case ".nbc" | ".so" if not re.fullmatch(rf"{_HEX}{{64}}", path.stem):
            return is_whole(path)
        case ".cubin" | ".so":
            return _has_content_of_name(path)
        case ".json":
            return _is_json(path)
        case ".npz":
            return zipfile.is_zipfile(path)
        case _:
            return True  # compared with what it should be when it is used


def _has_content_of_name(path: Path) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == path.stem
    except OSError:
        return False


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return True


def remove(files: Iterable[CacheFile]) -> tuple[int, int]:
    """Remove files; returns how many there were, and their bytes."""
    n_files = n_bytes = 0
    for file in files:
        with suppress(FileNotFoundError):
            file.path.unlink()
            n_files, n_bytes = n_files + 1, n_bytes + file.n_bytes
    for kind in KINDS:
        _remove_if_empty(cache_dir() / kind.name)
    return n_files, n_bytes


def _remove_if_empty(folder: Path) -> None:
    for inner in (folder / "__pycache__", folder):
        with suppress(OSError):  # not there, or not empty
            inner.rmdir()


def to_prune(max_days: float | None, max_bytes: int | None) -> list[CacheFile]:
    """Files that were not used for some days, and then the longest unused above a size."""
    files = [file for kind in KINDS if kind.is_remade for file in files_of(kind)]
    files.sort(key=lambda file: file.used)
    oldest = -float("inf") if max_days is None else time.time() - max_days * DAY_S
    total, result = sum(file.n_bytes for file in files), []
    for file in files:
        if file.used < oldest or (max_bytes is not None and total > max_bytes):
            result.append(file)
            total -= file.n_bytes
    return result

"""Files that appear whole or not at all, also while several processes write the same one.

Everything that Tremula writes for a user is written here: a full disk, an interrupt or an error
leaves the file as it was, or none.
"""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def atomic_path(path: str | os.PathLike[str], *, is_durable: bool = False) -> Iterator[Path]:
    """The path of an empty file that replaces `path` when the block ends well.

    Otherwise nothing changes. With `is_durable` its content is on the disk before it appears under
    its name. The file gets the permissions of the one it replaces, or of any new file of this
    process. What is no plain file, a pipe or /dev/stdout say, is written in place.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        yield path
        return
    path = path.resolve()  # a link stays one
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode if path.exists() else 0o666 & ~_umask()
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        if is_durable:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        temporary.chmod(mode & 0o777)  # mkstemp gives 0600
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise


@contextmanager
def atomic_file(
    path: str | os.PathLike[str], mode: str = "wb", *, is_durable: bool = False
) -> Iterator[IO]:
    """A new file, open for writing, that replaces `path` as `atomic_path` says."""
    with (
        atomic_path(path, is_durable=is_durable) as temporary,
        temporary.open(mode, encoding=None if "b" in mode else "utf-8") as file,
    ):
        yield file


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file in a folder that exists, whole or not at all."""
    _require_folder(Path(path))
    with atomic_file(path) as file:
        file.write(content)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file of UTF-8 text in a folder that exists, whole or not at all."""
    write_bytes(path, text.encode())


def _require_folder(path: Path) -> None:
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

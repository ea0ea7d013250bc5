"""Files that appear whole or not at all, also while several processes write the same one."""

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
    its name. The file gets the permissions any new file of this process gets.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        if is_durable:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # mkstemp gives 0600
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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

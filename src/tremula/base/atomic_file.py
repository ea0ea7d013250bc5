"""Files that appear whole or not at all, also while several processes write the same one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def atomic_file(
    path: str | os.PathLike[str], mode: str = "wb", *, is_durable: bool = False
) -> Iterator[IO]:
    """A new file that replaces `path` when the block ends well; otherwise nothing changes.

    With `is_durable` its content is on the disk before it appears under its name. The file gets the
    permissions any new file of this process gets.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp gives 0600
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

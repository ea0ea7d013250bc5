"""Reports that were dropped on the page, in a temporary folder for as long as the server runs."""

import re
import tempfile
from io import BufferedIOBase
from pathlib import Path

from tremula.base.errors import FileLoadError, MissingProfileData

MOST_UPLOAD_BYTES = 2 << 30
_MOST_UPLOADS = 8
_CHUNK_BYTES = 1 << 20


class Uploads:
    """Copies of reports; the folder is made when the first one comes."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory | None = None
        self._paths: list[Path] = []

    def add(self, name: str, source: BufferedIOBase, n_bytes: int) -> Path:
        """Copy a report of this many bytes; its file keeps its name, as far as that is harmless."""
        if len(self._paths) >= _MOST_UPLOADS:
            raise MissingProfileData(
                f"this page has opened {_MOST_UPLOADS} reports already.",
                hint="give the reports to `tremula view` instead",
            )
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="tremula-opened-")
        home = Path(tempfile.mkdtemp(dir=self._folder.name))
        path = home / _file_name(name)
        with path.open("wb") as file:
            left = n_bytes
            while left and (chunk := source.read(min(left, _CHUNK_BYTES))):
                left -= file.write(chunk)
        if left:
            path.unlink()
            raise FileLoadError(
                f"of {name[:80]!r} {n_bytes - left:,} of {n_bytes:,} bytes came.", hint="try again"
            )
        self._paths.append(path)
        return path

    def remove(self, path: Path) -> None:
        """Forget a file that is not a report."""
        path.unlink()
        self._paths.remove(path)

    def close(self) -> None:
        """Remove all copies."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def _file_name(name: str) -> str:
    """A plain name that ends in .pop: no folders, no odd characters."""
    stem = re.sub(r"[^\w. -]", "_", name.replace("\\", "/").split("/")[-1]).strip(". ")[:80]
    stem = stem.removesuffix(".pop")
    # The page names a plain profile.pop after its folder, which says nothing here.
    return "opened report.pop" if stem in ("", "profile") else f"{stem}.pop"

"""Reports on other computers, `host:path`: fetched by the ssh program into a temporary file.

One `ssh` per report reads one file; nothing is installed or written there. How to connect (names,
keys, jumps, ports) is ssh's own business: ~/.ssh/config.
"""

import posixpath
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tremula.base.errors import FileLoadError, InvalidOption
from tremula.commands.progress import progress

_SPEC = re.compile(
    r"(?P<host>(?:[^@:/\s]+@)?(?:\[[0-9A-Fa-f:.]+\]|[^@:/\s]+)):(?P<path>.*)", re.DOTALL
)
_MISSING, _FOLDER = 44, 45  # exit codes of the command below, which ssh passes on
_SSH_FAILED = 255  # of ssh itself
_CHUNK_BYTES = 1 << 20
_MARK = "tremula-report-bytes"
_MOST_NOISE_LINES, _LONGEST_LINE = 1000, 4096


@dataclass(frozen=True, slots=True)
class RemoteReport:
    """A file on another computer."""

    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.host}:{self.path}"


def remote_of(text: str) -> RemoteReport | None:
    """The remote file that `host:path` names; None for a path on this computer.

    As with scp, a name with a slash before its first colon is local, and so is a file that exists.
    """
    result = _SPEC.fullmatch(text)
    if result is None or Path(text).exists():
        return None
    host, path = result["host"], result["path"]
    if host.startswith("-"):
        raise InvalidOption(
            f"{host!r} is not a host name: it starts like an option of ssh.",
            hint="give host:path, user@host:path, or ./NAME for a file of this name",
        )
    if not path:
        raise InvalidOption(
            f"{text!r} names a host and no path.", hint=f"give {host}:FOLDER or {host}:profile.pop"
        )
    return RemoteReport(host.replace("[", "").replace("]", ""), path)


@contextmanager
def local_report(text: str) -> Iterator[Path]:
    """The report as a path on this computer, for as long as the block runs."""
    remote = remote_of(text)
    if remote is None:
        yield Path(text)
        return
    with tempfile.TemporaryDirectory(prefix="tremula-") as folder:
        home = Path(folder) / _title(remote)
        home.mkdir()
        suffix = ".pvti" if remote.path.endswith(".pvti") else ".pop"
        path = home / f"profile{suffix}"
        fetch(remote, path)
        yield path


def _title(remote: RemoteReport) -> str:
    """What the page calls it: the host and the last part of the path that says something."""
    parts = [part for part in remote.path.split("/") if part not in ("", ".", "~", "profile.pop")]
    name = f"{remote.host} {parts[-1] if parts else ''}".strip()
    return re.sub(r"[^\w.@ -]", "_", name)[:100]


def fetch(remote: RemoteReport, path: Path) -> None:
    """Copy a remote report to `path`; says in words why that was not possible."""
    command = [_ssh(), "--", remote.host, _remote_command(remote.path)]
    with tempfile.TemporaryFile() as errors, path.open("wb") as file:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process:
            assert process.stdout is not None, "Popen was called with a pipe"
            n_expected = _announced_size(process.stdout)
            n_bytes = _copied(process.stdout, file, n_expected) if n_expected else 0
        errors.seek(0)
        said = errors.read(4000).decode(errors="replace").strip()
    if process.returncode:
        raise _failure(remote, process.returncode, said)
    if n_bytes != n_expected or not n_bytes:
        raise FileLoadError(
            f"of {str(remote)!r} {n_bytes:,} of {n_expected or 0:,} bytes came.",
            hint="was the report written completely? Try again",
        )


def _announced_size(stream: IO[bytes]) -> int | None:
    """The size that comes before the file; what the login of a shell prints is skipped."""
    for _ in range(_MOST_NOISE_LINES):
        line = stream.readline(_LONGEST_LINE)
        if not line:
            return None
        start, _, number = line.partition(b" ")
        if start == _MARK.encode() and number.strip().isdigit():
            return int(number)
    return None


def _ssh() -> str:
    result = shutil.which("ssh")
    if result is None:
        raise FileLoadError(
            "reports on other computers are read with the program ssh, which is not on the PATH.",
            hint="install OpenSSH, or copy the report here and give its path",
        )
    return result


def _remote_command(path: str) -> str:
    """For any POSIX shell: the file, or the profile.pop of a folder. `~/` is the home folder."""
    home, rest = ("~/", path[2:]) if path.startswith("~/") else ("", path)
    name = "~" if path == "~" else home + (shlex.quote(rest) if rest else "")
    return (
        f'p={name}; if [ -d "$p" ]; then p="$p/profile.pop"; [ -f "$p" ] || exit {_FOLDER}; fi; '
        f'[ -f "$p" ] || exit {_MISSING}; echo {_MARK} $(wc -c < "$p"); exec cat < "$p"'
    )


def _copied(stream: IO[bytes], file: IO[bytes], n_expected: int) -> int:
    n_bytes = 0
    with progress("fetching") as report_share:
        while chunk := stream.read(_CHUNK_BYTES):
            n_bytes += file.write(chunk)
            report_share(n_bytes / n_expected)
    return n_bytes


def _failure(remote: RemoteReport, code: int, said: str) -> FileLoadError:
    reason = f": {said.splitlines()[-1]}" if said else ""
    look = f"look there: ssh {remote.host} ls"
    if code == _MISSING:
        parent = posixpath.dirname(remote.path) or "."
        return FileLoadError(
            f"there is no file {remote.path!r} on {remote.host!r}.",
            hint=f"{look} {shlex.quote(parent)}",
        )
    if code == _FOLDER:
        return FileLoadError(
            f"the folder {remote.path!r} on {remote.host!r} has no profile.pop.",
            hint=f"{look} {shlex.quote(remote.path)}",
        )
    if code == _SSH_FAILED:
        return FileLoadError(
            f"ssh cannot reach {remote.host!r}{reason}.",
            hint=f"does `ssh {remote.host}` work? For a local file of this name give ./{remote}",
        )
    return FileLoadError(
        f"reading {str(remote)!r} by ssh ended with exit code {code}{reason}.",
        hint="may you read this file there?",
    )

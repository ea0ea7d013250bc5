"""Builds sdists and wheels of all distributions, twice, and compares every byte.

    python tools/dist.py dist       # the folder for them; `make dist` does

What is built is what git tracks, in a copy. Dates are SOURCE_DATE_EPOCH, or the last commit's.
`tremula` and its parts, `tremula-garden` and `tremula-frontends`, are built from one source tree.
"""

import base64
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from divide import divide
from sbom import sbom
from wheel_contents import problems_of, shared_files

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = (".", "garden", "frontends", "names")
MAX_BYTES = 3_000_000  # of a wheel


def epoch() -> int:
    """The date of everything in an archive, in seconds."""
    text = os.environ.get("SOURCE_DATE_EPOCH")
    if text is None:
        command = ["git", "log", "-1", "--format=%ct"]
        text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return int(text)


def copy_tracked_files(folder: Path, epoch_s: int) -> None:
    """What git tracks, with plain modes and one date."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, place)
            place.chmod(0o755 if os.access(ROOT / name, os.X_OK) else 0o644)
            os.utime(place, (epoch_s, epoch_s))


def build(tree: Path, output: Path, epoch_s: int) -> None:
    """All projects, each as sdist and wheel, into a folder; from a copy of the tree."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s), "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "tree"
        shutil.copytree(tree, copy)
        for project in PROJECTS:
            made = Path(temporary) / f"made-{Path(project).name or 'main'}"
            command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", made]
            done = subprocess.run(
                [*command, copy / project], env=environment, capture_output=True, text=True,
                check=False,
            )  # fmt: skip
            if done.returncode:
                sys.exit(f"the build of {project!r} fails:\n{done.stdout}{done.stderr}")
            for path in sorted(made.glob("*.whl")):
                finish_wheel(path, output / path.name, copy / project, epoch_s)
            for path in sorted(made.glob("*.tar.gz")):
                finish_sdist(path, output / path.name, epoch_s)


def finish_wheel(wheel: Path, target: Path, project: Path, epoch_s: int) -> None:
    """Add the bill of materials, and write all files in order, with one date."""
    with zipfile.ZipFile(wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    record = next(name for name in members if name.endswith(".dist-info/RECORD"))
    info = record.removesuffix("/RECORD")
    name, version = info.removesuffix(".dist-info").split("-")
    members[f"{info}/sboms/{name}.cdx.json"] = sbom(project, version, epoch_s).encode()
    del members[record]
    rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in sorted(members.items())]
    members[record] = "\n".join([*rows, f"{record},,", ""]).encode()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(members, key=lambda path: (".dist-info/" in path, path)):
            archive.writestr(_zip_entry(path, epoch_s), members[path])


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def _zip_entry(path: str, epoch_s: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(path, time.gmtime(max(epoch_s, 315532800))[:6])  # from 1980 on
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (0o100644) << 16
    entry.create_system = 3
    return entry


def finish_sdist(sdist: Path, target: Path, epoch_s: int) -> None:
    """Write all files in order, with one date and no owner."""
    plain = io.BytesIO()
    with (
        tarfile.open(sdist) as old,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch_s, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with target.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=epoch_s) as packed:
        packed.write(plain.getvalue())


def main() -> int:
    output, epoch_s = Path(sys.argv[1]).resolve(), epoch()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        tree, again = Path(temporary) / "tree", Path(temporary) / "again"
        again.mkdir()
        copy_tracked_files(tree, epoch_s)
        divide(tree)
        build(tree, output, epoch_s)
        build(tree, again, epoch_s)
        differing = [
            path.name
            for path in sorted(output.iterdir())
            if path.read_bytes() != (again / path.name).read_bytes()
        ]
    problems = [f"{name} differs between two builds" for name in differing]
    wheels = sorted(output.glob("*.whl"))
    for wheel in wheels:
        problems += problems_of(wheel)
        if wheel.stat().st_size > MAX_BYTES:
            problems.append(f"{wheel.name} has {wheel.stat().st_size:,} bytes")
    problems += [f"several wheels write {name}" for name in shared_files(wheels)]
    files = sorted(map(str, output.iterdir()))
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    sizes = {path.name: path.stat().st_size for path in sorted(output.iterdir())}
    print(json.dumps({"identical": not differing, "bytes": sizes}, indent=2))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

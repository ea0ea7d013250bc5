"""`make lock`: writes constraints.lock, which is constraints.txt with the hashes of all files.

`make locked` installs exactly these files: pip rejects any other, wherever it comes from. Hashes
are those that the package index states for wheels that Linux can use, and for sources where there
is no wheel. PyPI's PyTorch loads libraries of CUDA, which constraints-cuda.lock has; builds for
CPUs, whose hashes are in PyTorch's index, need none.

    python tools/lock.py            write constraints.lock and constraints-cuda.lock
    python tools/lock.py --check    only say whether they list the versions of the .txt files
"""

import html
import re
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
# What is pinned, and the file with its hashes.
LOCKS = {
    ROOT / "constraints.txt": ROOT / "constraints.lock",
    ROOT / "constraints-cuda.txt": ROOT / "constraints-cuda.lock",
}
INDEX = "https://pypi.org/simple"
CPU_BUILDS = {"torch": "https://download.pytorch.org/whl/cpu"}
HEAD = """# Versions and hashes of {source}, by `make lock`.
# Install with `make locked`: pip install --require-hashes --no-deps -r {lock}
"""
_LINK = re.compile(r'<a href="([^"]+)#sha256=([0-9a-f]{64})"')
_OTHER_SYSTEMS = re.compile(r"win32|win_amd64|win_arm64|macosx|ios_|android|musllinux|pyodide|i686")
_OTHER_MACHINES = re.compile(r"linux_armv7l|_(?:ppc64le|s390x|riscv64|loongarch64)")
_OTHER_PYTHONS = re.compile(
    r"-(?:cp3(?:[0-9]|10|15)|pp\d+|graalpy\d*)-(?!abi3)|-cp\d+t-|-cp31\d-cp31\dt-"
)


def versions(constraints: Path) -> dict[str, str]:
    """The version of each package in a file of constraints."""
    lines = constraints.read_text(encoding="utf-8").splitlines()
    pairs = (line.split(";")[0].split("==") for line in lines if "==" in line and line[0] != "#")
    return {name.strip(): version.strip() for name, version in pairs}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def hashes_of(name: str, version: str) -> list[str]:
    """The hashes of the files of a version that can be installed here, wheels first."""
    files = _files(INDEX, name)
    begin = f"{normal(name)}-{version.split('+', maxsplit=1)[0]}"
    is_mine = re.compile(rf"{re.escape(begin)}(?:\.tar|\.zip|-(?:\d\w*-)?(?:py|cp)\d)").match
    mine = {file: h for file, h in files.items() if is_mine(_normal_file(file))}
    wheels = {f: h for f, h in mine.items() if f.endswith(".whl") and _is_ours(f)}
    return sorted((wheels or mine).values())


def _files(index: str, name: str) -> dict[str, str]:
    """Hashes of all files of a project, by file name."""
    with urllib.request.urlopen(f"{index}/{normal(name)}/", timeout=60) as answer:
        page = answer.read().decode()
    links = ((unquote(urlsplit(html.unescape(url)).path), h) for url, h in _LINK.findall(page))
    return {Path(path).name: h for path, h in links}


def hashes_of_cpu_builds(name: str, version: str) -> list[str]:
    """Hashes of builds for CPUs; those of the last lock if their index cannot be reached."""
    if name not in CPU_BUILDS:
        return []
    try:
        files = _files(CPU_BUILDS[name], name)
    except OSError as error:
        print(f"{CPU_BUILDS[name]} is out of reach ({error}): hashes in the lock stay")
        return [h for lock in LOCKS.values() for h in _locked_hashes(lock, name, version)]
    begin = f"{name}-{version}+cpu-"
    return [h for file, h in files.items() if file.startswith(begin) and _is_ours(file)]


def _locked_hashes(lock: Path, name: str, version: str) -> list[str]:
    text = lock.read_text(encoding="utf-8") if lock.is_file() else ""
    entry = text.partition(f"{name}=={version} \\\n")[2]
    lines = re.match(r"(?:    --hash=sha256:\w+(?: \\)?\n)*", entry)
    return re.findall(r"sha256:(\w+)", lines[0]) if lines else []


def _normal_file(file: str) -> str:
    """A file's name with its project's name in normal form."""
    match = re.match(r"(.+?)-(\d.*)$", file)
    return f"{normal(match[1])}-{match[2]}" if match else file


def _is_ours(wheel: str) -> bool:
    return not any(p.search(wheel) for p in (_OTHER_SYSTEMS, _OTHER_MACHINES, _OTHER_PYTHONS))


def locked(lock: Path) -> dict[str, str]:
    """The version of each package in a lock."""
    text = lock.read_text(encoding="utf-8") if lock.is_file() else ""
    return dict(re.findall(r"^([\w.-]+)==(\S+) \\$", text, re.MULTILINE))


def write(constraints: Path, lock: Path) -> None:
    wanted = versions(constraints)
    with ThreadPoolExecutor(8) as pool:
        results = pool.map(_all_hashes_of, wanted.keys(), wanted.values())
        hashes = dict(zip(wanted, results, strict=True))
    missing = [name for name, of_files in hashes.items() if not of_files]
    if missing:
        raise SystemExit(f"the index has no files of {', '.join(missing)}")
    entries = (
        f"{name}=={wanted[name]} \\\n" + " \\\n".join(f"    --hash=sha256:{h}" for h in of_files)
        for name, of_files in hashes.items()
    )
    head = HEAD.format(source=constraints.name, lock=lock.name)
    lock.write_text(head + "\n".join(entries) + "\n", encoding="utf-8")
    print(f"{lock.name}: {len(hashes)} packages, {sum(map(len, hashes.values()))} files")


def _all_hashes_of(name: str, version: str) -> list[str]:
    return sorted({*hashes_of(name, version), *hashes_of_cpu_builds(name, version)})


def main() -> int:
    is_old = False
    for constraints, lock in LOCKS.items():
        if "--check" not in sys.argv:
            write(constraints, lock)
        differing = {name for name, _ in versions(constraints).items() ^ locked(lock).items()}
        if differing:
            names = ", ".join(sorted(differing))
            print(f"{lock.name} is not up to date: {names}; run `make lock`")
        is_old |= bool(differing)
    return int(is_old)


if __name__ == "__main__":
    sys.exit(main())

"""`make lock`: writes constraints.lock, constraints.txt with the hashes of all files.

`make locked` installs exactly these files: pip rejects any other, wherever it comes from. Hashes
are those that the package index states for wheels that Linux can use, and for sources where there
is no wheel.

    python tools/lock.py            write constraints.lock
    python tools/lock.py --check    only say whether it lists the versions of constraints.txt
"""

import html
import re
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS, LOCK = ROOT / "constraints.txt", ROOT / "constraints.lock"
INDEX = "https://pypi.org/simple"
HEAD = """# Versions and hashes of everything `make` installs, from constraints.txt by `make lock`.
# Install with `make locked`: pip install --require-hashes --no-deps -r constraints.lock
"""
_LINK = re.compile(r'<a href="([^"]+)#sha256=([0-9a-f]{64})"')
_OTHER_SYSTEMS = re.compile(r"win32|win_amd64|win_arm64|macosx|ios_|android|musllinux|pyodide|i686")
_OTHER_MACHINES = re.compile(r"linux_armv7l|_(?:ppc64le|s390x|riscv64|loongarch64)")
_OTHER_PYTHONS = re.compile(
    r"-(?:cp3(?:[0-9]|10|15)|pp\d+|graalpy\d*)-(?!abi3)|-cp\d+t-|-cp31\d-cp31\dt-"
)


def versions() -> dict[str, str]:
    """The version of each package in constraints.txt."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    pairs = (line.split(";")[0].split("==") for line in lines if "==" in line and line[0] != "#")
    return {name.strip(): version.strip() for name, version in pairs}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def hashes_of(name: str, version: str) -> list[str]:
    """The hashes of the files of a version that can be installed here, wheels first."""
    with urllib.request.urlopen(f"{INDEX}/{normal(name)}/", timeout=60) as answer:
        page = answer.read().decode()
    links = ((unquote(urlsplit(html.unescape(url)).path), h) for url, h in _LINK.findall(page))
    files = {Path(path).name: h for path, h in links}
    begin = f"{normal(name)}-{version.split('+', maxsplit=1)[0]}"
    is_mine = re.compile(rf"{re.escape(begin)}(?:\.tar|\.zip|-(?:\d\w*-)?(?:py|cp)\d)").match
    mine = {file: h for file, h in files.items() if is_mine(_normal_file(file))}
    wheels = {f: h for f, h in mine.items() if f.endswith(".whl") and _is_ours(f)}
    return sorted((wheels or mine).values())


def _normal_file(file: str) -> str:
    """A file's name with its project's name in normal form."""
    match = re.match(r"(.+?)-(\d.*)$", file)
    return f"{normal(match[1])}-{match[2]}" if match else file


def _is_ours(wheel: str) -> bool:
    return not any(p.search(wheel) for p in (_OTHER_SYSTEMS, _OTHER_MACHINES, _OTHER_PYTHONS))


def locked() -> dict[str, str]:
    """The version of each package in constraints.lock."""
    text = LOCK.read_text(encoding="utf-8") if LOCK.is_file() else ""
    return dict(re.findall(r"^([\w.-]+)==(\S+) \\$", text, re.MULTILINE))


def write() -> None:
    wanted = versions()
    with ThreadPoolExecutor(8) as pool:
        results = pool.map(hashes_of, wanted.keys(), wanted.values())
        hashes = dict(zip(wanted, results, strict=True))
    missing = [name for name, of_files in hashes.items() if not of_files]
    if missing:
        raise SystemExit(f"the index has no files of {', '.join(missing)}")
    entries = (
        f"{name}=={wanted[name]} \\\n" + " \\\n".join(f"    --hash=sha256:{h}" for h in of_files)
        for name, of_files in hashes.items()
    )
    LOCK.write_text(HEAD + "\n".join(entries) + "\n", encoding="utf-8")
    print(f"{LOCK.name}: {len(hashes)} packages, {sum(map(len, hashes.values()))} files")


def main() -> int:
    if "--check" not in sys.argv:
        write()
    differing = {name for name, _ in versions().items() ^ locked().items()}
    if differing:
        print(
            f"constraints.lock is not up to date: {', '.join(sorted(differing))}; run `make lock`"
        )
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())

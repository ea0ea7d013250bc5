"""Collects the fragments of changes/ into a section of CHANGELOG.md.

python tools/changelog.py              # prints the section
python tools/changelog.py 0.3.0        # writes it under this version, and removes the fragments
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "changes"
CHANGELOG = ROOT / "CHANGELOG.md"
SECTIONS = ("added", "changed", "fixed")
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def fragments(folder: Path = FOLDER) -> dict[str, list[Path]]:
    """The files of each section; a file that belongs to none is an error."""
    result: dict[str, list[Path]] = {section: [] for section in SECTIONS}
    for path in sorted(folder.glob("*.md")):
        if path.name == "README.md":
            continue
        parts = path.name.split(".")
        if len(parts) != 3 or parts[1] not in SECTIONS:
            raise SystemExit(f"{path.name}: expected WORDS.SECTION.md, with one of {SECTIONS}")
        result[parts[1]].append(path)
    return result


def section_of(version: str, files: dict[str, list[Path]]) -> str:
    """The Markdown of a version."""
    lines = [f"## {version}", ""]
    for section, paths in files.items():
        if paths:
            lines += [f"### {section.capitalize()}", *map(_item, paths), ""]
    return "\n".join(lines)


def _item(path: Path) -> str:
    first, *rest = path.read_text(encoding="utf-8").strip().splitlines()
    return "\n".join([f"- {first}", *(f"  {line}".rstrip() for line in rest)])


def main(arguments: list[str]) -> int:
    files = fragments()
    if not arguments:
        print(section_of("Next", files))
        return 0
    (version,) = arguments
    if not _VERSION.fullmatch(version):
        raise SystemExit(f"{version!r} is not a version: expected three numbers, 0.3.0 for one")
    if not any(files.values()):
        raise SystemExit(f"no change is described in {FOLDER.name}/")
    before, heading, after = CHANGELOG.read_text(encoding="utf-8").partition("\n## ")
    text = f"{before}\n{section_of(version, files)}{heading}{after}"
    CHANGELOG.write_text(text, encoding="utf-8")
    for path in (path for paths in files.values() for path in paths):
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Builds the documentation site: README, docs and examples side by side, so that their links hold.

python tools/site.py                 # build/site; a dead link or anchor is an error
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "build" / "site-source"
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")
FOLDERS = ("docs", "examples")
# What our tests read behind a block's language, "no-check" say, is unknown to the site's Markdown.
_FENCE = re.compile(r"^(\s*```\w+) .*$", re.MULTILINE)
_NOT_SHOWN = shutil.ignore_patterns("__pycache__", "*.npz", "*.expected")


def lay_out() -> None:
    """Copy everything the site shows into one folder, laid out as in the repository."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    for page in PAGES:
        shutil.copy(ROOT / page, SOURCE / page)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, SOURCE / folder, ignore=_NOT_SHOWN)
    for page in SOURCE.rglob("*.md"):
        page.write_text(_FENCE.sub(r"\1", page.read_text(encoding="utf-8")), encoding="utf-8")


def main() -> int:
    lay_out()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--clean"]
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode == 0:
        print(f"open {ROOT / 'build' / 'site' / 'index.html'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

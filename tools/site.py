"""Builds the documentation site: README, docs and examples side by side, so that their links hold.

python tools/site.py                 # build/site; a dead link or anchor is an error

Pages of the garden and their reports are made here from what is in the repository; nothing is run.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from garden_pages import write_garden_pages
from site_reports import write_site_reports

ROOT = Path(__file__).resolve().parent.parent
SOURCE, SITE = ROOT / "build" / "site-source", ROOT / "build" / "site"
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")
FOLDERS = ("docs", "examples")
# What our tests read behind a block's language, "no-check" say, is unknown to the site's Markdown.
_FENCE = re.compile(r"^(\s*```\w+) .*$", re.MULTILINE)
_REMOTE_WORKER = "https://unpkg.com/iframe-worker/shim"
_NOT_SHOWN = shutil.ignore_patterns("__pycache__", "*.npz", "*.expected", "*.packs")


def lay_out() -> None:
    """Copy everything the site shows into one folder, laid out as in the repository."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    for page in PAGES:
        shutil.copy(ROOT / page, SOURCE / page)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, SOURCE / folder, ignore=_NOT_SHOWN)
    write_garden_pages(SOURCE / "garden")
    write_site_reports(SOURCE / "reports")
    for page in SOURCE.rglob("*.md"):
        page.write_text(_FENCE.sub(r"\1", page.read_text(encoding="utf-8")), encoding="utf-8")


def use_own_worker() -> None:
    """Search from a folder needs a script that the theme would fetch; the site has it inside."""
    for page in SITE.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if _REMOTE_WORKER in text:
            up = "../" * (len(page.relative_to(SITE).parts) - 1)
            text = text.replace(_REMOTE_WORKER, f"{up}docs/site/iframe-worker.js")
            page.write_text(text, encoding="utf-8")


def weight() -> str:
    """What the site weighs, and its largest page."""
    sizes = {path: path.stat().st_size for path in SITE.rglob("*") if path.is_file()}
    pages = {path: size for path, size in sizes.items() if path.suffix == ".html"}
    largest = max(pages, key=lambda path: pages[path])
    total, n_bytes = sum(sizes.values()) / 1e6, pages[largest] / 1e6
    return (
        f"{len(pages)} pages, {total:.1f} MB; the largest is {largest.relative_to(SITE)},"
        f" {n_bytes:.2f} MB"
    )


def main() -> int:
    began = time.monotonic()
    lay_out()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--clean"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # advice of the theme's authors
    done = subprocess.run(command, cwd=ROOT, env=quiet, check=False)
    if done.returncode == 0:
        use_own_worker()
        print(f"{weight()}; built in {time.monotonic() - began:.0f} s")
        print(f"open {SITE / 'index.html'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

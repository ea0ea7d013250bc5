"""Looks at the built site in a real browser: python tools/check_site.py [--every N]

Each page is opened from its folder, without a network, on a phone (390 px, light) and on a desk
(1280 px, dark): errors on the console, what does not load, text with too little contrast, pages
wider than their window, and whether search finds something. `make site-check` builds it first.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.vision.browser import DRIVER_FOLDER, chromium, missing  # noqa: E402 - the line above
from tremula.commands.progress import with_progress  # noqa: E402

SITE = ROOT / "build" / "site"
# Pages that are looked at in any case: one of each kind.
ALWAYS = ("README.html", "index.html", "garden/index.html", "docs/choose.html", "docs/errors.html")


def pages(every: int) -> list[str]:
    """Paths of pages in the site, of the others each N-th; reports at a deep link."""
    listed = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html"))
    listed.remove("404.html")  # for servers: its links begin at their root
    chosen = [name for i, name in enumerate(listed) if i % every == 0 or name in ALWAYS]
    return [
        f"{name}#view=execution&step=0" if name.startswith("reports/") else name for name in chosen
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th page only")
    every = parser.parse_args().every
    why, browser = missing(), chromium()
    if why or browser is None:
        sys.exit(f"there is no browser: {why}")
    names = pages(every)
    command = ["node", str(DRIVER_FOLDER / "check_site.mjs"), browser, str(SITE), *names]
    with subprocess.Popen(command, cwd=DRIVER_FOLDER, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "Popen was called with a pipe"
        lines = with_progress("looking at pages", process.stdout, len(names) + 1)
        results = [json.loads(line) for line in lines]
    wrong = [result for result in results if result["problems"]]
    for result in wrong:
        print(result["page"], *result["problems"], sep="\n  ")
    print(f"{len(results)} pages looked at, {len(wrong)} with problems")
    return 1 if wrong or process.returncode else 0


if __name__ == "__main__":
    sys.exit(main())

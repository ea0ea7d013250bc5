"""Renews the screenshots of docs/vision-tour.md: python take_screenshots.py REPORT OTHER_REPORT."""

import sys
from pathlib import Path

from tests.vision_page.conftest import serving
from tremula.bench.browser import Browser

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
SHOTS = {
    "summary": ("#/summary", "light", 720),
    "memory": ("#/memory?tile=312&by=category", "light", 860),
    "liveness": ("#/liveness", "light", 1010),
    "operations": ("#/operations?op=model.3%2Fconvolution_default_1", "light", 800),
    "execution": ("#/execution?from=100000&to=130000&show=flat&step=9&tile=700", "dark", 1000),
}


def main(report: str, other: str) -> None:
    IMAGES.mkdir(exist_ok=True)
    with Browser() as browser:
        with serving(report) as server:
            for name, (hash, theme, height) in SHOTS.items():
                take(browser, server.url, name, hash, theme, height)
        with serving(report, other) as server:
            take(browser, server.url, "compare", "#/compare", "light", 640)


def take(browser, url, name, hash, theme, height):
    browser.open(url=url, theme=theme, width=1240, height=height)
    browser.show(hash=hash)
    browser.wait(ms=400)
    browser.screenshot(path=str(IMAGES / f"vision-{name}.png"))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Renews the screenshots of docs/vision-tour.md: take_screenshots.py REPORT OTHER PIPELINE GIN."""

import sys
from pathlib import Path

from tests.vision.browser import Browser
from tests.vision.serving import serving

IMAGES = Path(__file__).resolve().parents[3] / "docs" / "images"
SHOTS = {
    "summary": ("#/summary", "light", 720),
    "memory": ("#/memory?tile=312&by=category", "light", 860),
    "addresses": ("#/memory?tile=312&span=used", "light", 640),
    "liveness": ("#/liveness", "light", 1010),
    "operations": ("#/operations", "light", 960),
    "execution": ("#/execution?from=222000&to=256000&show=flat&step=9&tile=700", "dark", 1000),
    "chip": ("#/chip?step=9&tile=700", "dark", 960),
    "whatif": ("#/whatif", "light", 1190),
}


def main(report: str, other: str, pipeline: str, graphs: str) -> None:
    IMAGES.mkdir(exist_ok=True)
    with Browser() as browser:
        with serving(report) as server:
            for name, (hash, theme, height) in SHOTS.items():
                take(browser, server.url, name, hash, theme, height)
        with serving(report, other) as server:
            take(browser, server.url, "compare", "#/compare", "light", 640)
        with serving(pipeline) as server:
            take(browser, server.url, "stages", "#/stages", "light", 900)
        with serving(graphs) as server:
            take(browser, server.url, "graphs", "#/operations", "light", 960)


def take(browser, url, name, hash, theme, height):
    browser.open(url=url, theme=theme, width=1240, height=height)
    browser.show(hash=hash)
    browser.wait(ms=400)
    if name == "addresses":
        browser.evaluate(code="document.querySelector('.addresses').scrollIntoView()")
        browser.wait(ms=200)
    browser.screenshot(path=str(IMAGES / f"vision-{name}.png"))


if __name__ == "__main__":
    main(*sys.argv[1:])

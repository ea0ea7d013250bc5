"""Renews docs/images/garden.png from the figures that are kept: python take_screenshot.py."""

import tempfile
from pathlib import Path

from tests.vision.browser import Browser
from tremula.garden.catalogue.catalogue import all_applications
from tremula.garden.catalogue.page_file import write_page

IMAGE = Path(__file__).resolve().parents[4] / "docs" / "images" / "garden.png"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        path = Path(folder) / "garden.html"
        write_page(all_applications(), path)
        browser.open(url=path.as_uri(), offline=True, width=1240, height=960)
        browser.screenshot(path=str(IMAGE))


if __name__ == "__main__":
    main()

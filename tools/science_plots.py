"""Renews the plots of the sciences' pages: docs/images/science-NAME.svg.

python tools/science_plots.py epidemic_abc
python tools/science_plots.py            # all of them

An application that has a plot has a file plot.py with `def svg() -> str`.
"""

import argparse
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
APPLICATIONS = ROOT / "src" / "tremula" / "garden" / "applications"


def main() -> None:
    names = sorted(path.parent.name for path in APPLICATIONS.glob("*/plot.py"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    for name in parser.parse_args().names or names:
        module = import_module(f"tremula.garden.applications.{name}.plot")
        path = ROOT / "docs" / "images" / f"science-{name.replace('_', '-')}.svg"
        path.write_text(module.svg(), encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()

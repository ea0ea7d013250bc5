"""The process of a case: measures it, and writes each figure at once. Ends with 0 if all are there.

python -m tools.gpu_table.measure poptorch gpu-large:vit-b figures.json
"""

import sys
from pathlib import Path

import tremula
from benchmarks import load_suite, print_figures, written


def main() -> None:
    suite, name, file = sys.argv[1:]
    tremula.install()
    print_figures(written(load_suite(suite).measure([name]), Path(file)), [])


if __name__ == "__main__":
    main()

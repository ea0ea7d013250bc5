"""`python -m tools.fuzz`: see `python -m tools.fuzz --help`."""

import sys

from tools.fuzz.command import main

if __name__ == "__main__":
    sys.exit(main())

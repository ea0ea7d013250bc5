"""`python -m tremula`: the same as the command `tremula`."""

import sys

from tremula.commands import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m tremula.commands` is the `tremula` command."""

import sys

from tremula.commands import main

sys.exit(main())

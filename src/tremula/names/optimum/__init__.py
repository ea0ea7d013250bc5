"""The parts of Optimum that are installed, and `optimum.graphcore`: in child processes.

There this folder is on the path; with the hook on, `optimum` is found again, without this file.
"""

import sys
from importlib import import_module

from tremula.base.names import install

install()
del sys.modules[__name__]
import_module(__name__)

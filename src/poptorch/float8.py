"""8-bit floats, under a name of their own; see docs/low-precision.md."""

from tremula.frontends.poptorch.ops.float8 import *  # noqa: F403 - all its names are ours
from tremula.frontends.poptorch.ops.float8 import __all__  # noqa: F401

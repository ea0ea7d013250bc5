"""poptorch.float8: layers with 8-bit floats, an addition of Tremula; see docs/low-precision.md."""

from tremula.frontends.poptorch.ops.float8 import *  # noqa: F403 - all its names are ours
from tremula.frontends.poptorch.ops.float8 import __all__  # noqa: F401

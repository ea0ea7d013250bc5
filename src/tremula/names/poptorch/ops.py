"""The operations, under the name that PopTorch scripts import."""

from tremula.frontends.poptorch.ops.ops import *  # noqa: F403 - all its names are ours
from tremula.frontends.poptorch.ops.ops import __all__  # noqa: F401

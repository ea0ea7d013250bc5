"""Sparse layers, under a name of their own; see docs/popsparse.md."""

from tremula.frontends.poptorch.ops.sparse import *  # noqa: F403 - all its names are ours
from tremula.frontends.poptorch.ops.sparse import __all__  # noqa: F401

"""poptorch.sparse: sparse layers, an addition of Tremula; see docs/popsparse.md."""

from tremula.frontends.poptorch.ops.sparse import *  # noqa: F403 - all its names are ours
from tremula.frontends.poptorch.ops.sparse import __all__  # noqa: F401

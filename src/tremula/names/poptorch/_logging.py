"""poptorch._logging: the log and its levels."""

from tremula.frontends.poptorch.logging import LOGGER as logger  # noqa: N811 (the name scripts use)
from tremula.frontends.poptorch.logging import setLogLevel, setPopartLogLevel

__all__ = ["logger", "setLogLevel", "setPopartLogLevel"]

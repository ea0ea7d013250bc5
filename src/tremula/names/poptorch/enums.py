"""poptorch.enums: the enumerations."""

from tremula.frontends.poptorch.enums import *  # noqa: F403 - all its names are public

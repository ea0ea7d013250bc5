"""poptorch.testing: comparison of results."""

from tremula.frontends.poptorch.testing import allclose

__all__ = ["allclose"]

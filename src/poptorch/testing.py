"""poptorch.testing: comparison of results."""

from tremula.frontends.torch.testing import allclose

__all__ = ["allclose"]

"""Options that no environment has touched."""

import pytest

import poptorch


@pytest.fixture
def opts(monkeypatch):
    """Options that no environment has touched."""
    for name in ("POPTORCH_CACHE_DIR", "POPTORCH_DEFAULT_OPTIONS", "POPTORCH_IPU_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return poptorch.Options()

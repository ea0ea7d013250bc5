"""Engine tests compile into a code cache of their own, shared by the whole session."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def code_cache(tmp_path_factory):
    """Neither use nor leave anything in the user's cache."""
    patch = pytest.MonkeyPatch()
    patch.setenv("TREMULA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()

"""Engine tests compile into a code cache of their own."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def code_cache(code_folder):
    """Neither use nor leave anything in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREMULA_CACHE_DIR", str(code_folder))
        yield

"""Tests of front ends start with the log of a fresh process."""

import pytest

import poptorch
from tremula.frontends.poptorch.logging import DEFAULT_LEVEL, LOGGER, REPEATS, set_max_repeats
from tremula.vision.trace import recorder as trace


@pytest.fixture(autouse=True)
def fresh_log():
    """Forget repeated messages before a test; restore the level and stop any trace after it."""
    level, limit = LOGGER.level, REPEATS.limit
    REPEATS.forget()
    poptorch.setLogLevel(DEFAULT_LEVEL)
    yield
    LOGGER.setLevel(level)
    set_max_repeats(limit)
    trace.stop()  # profiled models open one

"""Shared by the tests of PopTorch: each starts with the log as a fresh process has it."""

import pytest

import poptorch
from tremula.frontends.poptorch.logging import DEFAULT_LEVEL, LOGGER, REPEATS, set_max_repeats
from tremula.vision.trace import recorder as trace


@pytest.fixture(autouse=True)
def fresh_log():
    """No message counts as shown before, the level is as it was afterwards, no trace goes on."""
    level, limit = LOGGER.level, REPEATS.limit
    REPEATS.forget()
    poptorch.setLogLevel(DEFAULT_LEVEL)
    yield
    LOGGER.setLevel(level)
    set_max_repeats(limit)
    trace.stop()  # profiled models open one

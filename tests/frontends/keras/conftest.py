"""Tests of Keras leave TensorFlow's names and methods as they were."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def names_of_tensorflow():
    """What a module's tests import by TensorFlow's names is taken away after it."""
    yield
    from tremula.frontends.keras.tensorflow.names import forget_tensorflow

    forget_tensorflow()

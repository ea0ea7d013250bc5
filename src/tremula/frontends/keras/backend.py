"""Keras with its PyTorch backend: chosen where Keras is not loaded yet, required where it is."""

import os
import sys
from typing import TYPE_CHECKING

from tremula.frontends.keras.errors import keras_error

if TYPE_CHECKING:  # Keras is loaded once its backend is chosen
    import keras
    from torch import Tensor

    from tremula.frontends.keras.tracing import ModelVariable

VARIABLE = "KERAS_BACKEND"


def use_torch() -> None:
    """Make Keras compute with PyTorch; an error if it was loaded with another backend."""
    loaded = sys.modules.get("keras")
    if loaded is None:
        os.environ[VARIABLE] = "torch"
        return
    result = loaded.config.backend()
    if result != "torch":
        raise keras_error(
            f"Keras is loaded with the backend {result!r}; Tremula needs 'torch'.",
            hint="import tremula.keras before keras, or set KERAS_BACKEND=torch",
        )


def tensor_of(variable: "keras.Variable | ModelVariable") -> "Tensor":
    """A variable's tensor itself; `variable.value` is another one inside scopes of Keras."""
    return variable._value  # pyright: ignore[reportReturnType] - the backend is PyTorch

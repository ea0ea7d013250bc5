"""`import tremula.keras`: models of Keras as programs for this computer and for tiles."""

from tremula.frontends.keras import ipu
from tremula.frontends.keras.errors import KerasError
from tremula.frontends.keras.tensorflow.names import as_tensorflow

__all__ = ["KerasError", "as_tensorflow", "ipu"]

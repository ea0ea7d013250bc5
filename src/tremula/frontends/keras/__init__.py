"""Keras models as compiled steps: `tremula.keras` names its parts."""

from tremula.base.requirements import require
from tremula.frontends.keras.backend import use_torch

require("tremula.keras", "keras")
use_torch()  # Keras reads its backend when it is imported, which parts of this package do

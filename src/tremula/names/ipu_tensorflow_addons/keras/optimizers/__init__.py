"""ipu_tensorflow_addons.keras.optimizers: the add-ons' optimisers."""

from tremula.frontends.keras.addons.optimizers import *  # noqa: F403 - all its names are public

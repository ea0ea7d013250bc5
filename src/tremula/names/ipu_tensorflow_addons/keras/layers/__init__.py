"""ipu_tensorflow_addons.keras.layers: the add-ons' layers."""

from tremula.frontends.keras.addons.layers import *  # noqa: F403 - all its names are public

"""Layers and optimisers of Graphcore's add-ons for Keras: `ipu_tensorflow_addons` names them."""

"""ipu_tensorflow_addons.keras: layers and optimisers."""

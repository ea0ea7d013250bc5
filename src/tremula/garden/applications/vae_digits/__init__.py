"""A variational autoencoder that learns to draw digits, with its noise drawn on the chip."""

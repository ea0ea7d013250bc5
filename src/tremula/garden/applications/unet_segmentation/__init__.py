"""UNet in Keras: which pixels belong to a disc."""

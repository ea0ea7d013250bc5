"""The slides' network for CIFAR-10 with Keras."""

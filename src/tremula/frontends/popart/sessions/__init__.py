"""Sessions: a model on a device, with its weights, its optimiser and its anchors."""

"""Lowerings of layers: norms, pooling, losses, softmax, recurrent nets, resizing."""

"""Lowerings of softmax."""

"""Layers with variables: linear, convolution, embedding, norms."""

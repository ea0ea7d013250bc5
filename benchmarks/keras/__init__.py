"""Figures of Keras models: speed of `fit`, the first batch, the import."""

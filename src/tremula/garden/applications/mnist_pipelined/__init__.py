"""Digits with Keras as a pipeline over two chips."""

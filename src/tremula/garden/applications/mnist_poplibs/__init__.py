"""Digits with PopLibs: a network with a hidden layer, operation by operation."""

"""Pipelines of transformers on compiled models, and the four that transformers 5 removed."""

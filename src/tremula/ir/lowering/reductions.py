"""Lowerings of reductions."""

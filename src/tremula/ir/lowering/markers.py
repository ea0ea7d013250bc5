"""Lowerings of markers."""

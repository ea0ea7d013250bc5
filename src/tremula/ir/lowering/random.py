"""Lowerings of random."""

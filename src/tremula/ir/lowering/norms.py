"""Lowerings of norms."""

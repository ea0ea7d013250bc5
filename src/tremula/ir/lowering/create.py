"""Lowerings of create."""

"""Lowerings of sorting."""

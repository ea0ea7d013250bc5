"""Lowerings of lookups."""

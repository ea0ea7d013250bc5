"""Lowerings of losses."""

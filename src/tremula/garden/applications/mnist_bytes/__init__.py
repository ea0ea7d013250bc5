"""Digits that arrive as bytes, while the step before them is computed."""

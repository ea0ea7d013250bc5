"""Shallow water on a rotating plane: the core of a weather model, on tiles."""

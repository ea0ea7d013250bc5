"""Graphs whose arguments have names, modules that make them, and what is shared between them."""

"""Factorisations and triangular systems, panel by panel."""

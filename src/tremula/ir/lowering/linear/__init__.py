"""Lowerings of linear algebra: products, convolutions, factorisations."""

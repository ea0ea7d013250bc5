"""Tile low-rank matrix-vector products: compressed covariance matrices, three phases."""

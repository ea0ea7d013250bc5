"""Feeding: an in-memory data set as columns, and batches as vectorised copies from them."""

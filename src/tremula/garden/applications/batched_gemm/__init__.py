"""Batches of small products, real and complex: all problems at once, each on tiles of its own."""

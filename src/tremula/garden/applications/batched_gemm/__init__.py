"""Batches of small products, real and complex: all problems at once, each on separate tiles."""

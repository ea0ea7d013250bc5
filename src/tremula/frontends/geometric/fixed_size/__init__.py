"""Batches of one size: how large they are, how graphs are padded and trimmed to that size."""

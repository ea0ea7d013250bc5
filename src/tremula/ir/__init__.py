"""A PyTorch model's whole step as one graph of ATen operations, and what both executions make of it."""

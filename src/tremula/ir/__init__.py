"""A PyTorch model's whole step as one graph of ATen operations, and both its executions."""

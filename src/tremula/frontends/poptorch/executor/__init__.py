"""A wrapped model: captured, compiled, called; its weights, its device, its files."""

"""Ways to run a captured step on this computer: operation by operation, compiled, recorded."""

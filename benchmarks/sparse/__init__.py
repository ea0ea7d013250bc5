"""The figures of sparsity and low precision."""

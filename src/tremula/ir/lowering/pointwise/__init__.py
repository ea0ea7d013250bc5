"""Lowerings of element-wise operations: one formula each, one vertex per tile."""

"""Element-wise operations: their table, expressions of them, and the vertices they become."""

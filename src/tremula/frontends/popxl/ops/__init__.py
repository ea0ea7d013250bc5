"""The operations: rows of one table, by subject."""

"""The entries of the table of operators, by family."""

"""Other libraries: what is replaced in them, and Python files in place of compiled ones."""

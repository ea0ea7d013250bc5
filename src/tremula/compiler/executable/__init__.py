"""The result of compilation: its records, how they are made, hashed, and checked when read."""

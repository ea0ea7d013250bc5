"""The Python a codelet is written in: its source as data, its subset, its kinds of values."""

"""The report file: its schema, how it is written and how it is read."""

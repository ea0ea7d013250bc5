"""Executables as files: records ↔ bytes, packed columns, and checks of what was read."""

"""Records and columns ↔ files."""

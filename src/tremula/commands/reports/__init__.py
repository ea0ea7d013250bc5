"""Reports on other computers, for other tools, and over many runs."""

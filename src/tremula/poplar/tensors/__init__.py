"""Variables, views of them, and the tiles they are on."""

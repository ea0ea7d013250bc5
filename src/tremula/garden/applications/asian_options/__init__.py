"""Asian options by Monte Carlo: paths drawn on the tiles, Greeks from the same paths."""

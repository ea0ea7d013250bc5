"""Options on binomial trees: one option per worker, unequal trees, balanced over tiles."""

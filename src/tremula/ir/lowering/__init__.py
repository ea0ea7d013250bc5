"""From a captured step to a tile program: one table entry per ATen operation."""

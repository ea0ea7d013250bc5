"""Missing links of a knowledge graph, by paths from the question."""

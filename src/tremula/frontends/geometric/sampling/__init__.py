"""Parts of one large graph: neighbours of some nodes, and a partition into clusters."""

"""popnn: to come."""

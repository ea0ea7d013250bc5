"""poplin: to come."""

"""poprand: to come."""

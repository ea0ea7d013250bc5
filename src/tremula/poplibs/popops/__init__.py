"""popops: to come."""

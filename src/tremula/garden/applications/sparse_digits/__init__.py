"""A sparse layer that finds its own connections while it learns digits."""

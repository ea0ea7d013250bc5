"""A temporal graph network on a stream of events."""

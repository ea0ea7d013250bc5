"""libpva's object model on a report file."""

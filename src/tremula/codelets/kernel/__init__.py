"""A codelet's source → the text of its kernel → native code."""

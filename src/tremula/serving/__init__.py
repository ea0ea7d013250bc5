"""Serving: a compiled inference program behind HTTP, in the V2 inference protocol."""

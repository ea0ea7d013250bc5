"""Finds objects, and drops boxes that overlap on the tiles themselves."""

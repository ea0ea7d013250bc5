"""Sequence alignment: Needleman and Wunsch as a wavefront, X-drop with a pair per worker."""

"""Sorting, the k largest, and where the largest is."""

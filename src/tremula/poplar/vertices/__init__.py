"""Compute sets and the vertex tables in them, growing and frozen."""

"""Packing: which graphs share a batch so that little of it is padding."""

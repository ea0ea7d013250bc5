"""Lowerings of lookups, updates and orders: rows of a table, planned."""

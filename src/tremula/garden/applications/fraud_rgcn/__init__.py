"""Frauds among accounts, by a relational graph network."""

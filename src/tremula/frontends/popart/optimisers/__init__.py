"""Optimisers: what scripts say, and the update rules that follow."""

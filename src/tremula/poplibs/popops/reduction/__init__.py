"""Reductions, scans and whole-tensor questions: within tiles first, then across them."""

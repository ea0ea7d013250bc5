"""Whole models: what was measured on pods and cards, built as the public configurations say."""

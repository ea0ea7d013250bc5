"""Trainers: transformers' own loop around a compiled step."""

"""Pipelines: the stages of a step, what travels between them, and the program that runs them."""

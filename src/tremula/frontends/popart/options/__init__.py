"""Choices of a session: every option with its default and its effect, and patterns."""

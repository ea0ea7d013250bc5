"""Figures of the garden: applications, sciences, serving, the page."""

"""Figures of a release: sizes, times of a first use, builds, and what an installation changes."""

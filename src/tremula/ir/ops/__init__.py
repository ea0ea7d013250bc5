"""Tremula's operations in a captured step: marks, loops, branches, host code, custom ones."""

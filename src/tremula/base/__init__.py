"""Foundations every other layer uses: types, errors, source lines, options."""

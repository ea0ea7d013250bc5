"""Fourier transforms of many signals by PopLibs: halves are views, small ones are products."""

"""Handwritten digits with PopTorch."""

"""Figures of PopXL."""

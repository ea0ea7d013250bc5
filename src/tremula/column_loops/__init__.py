"""Loops over columns that NumPy cannot express, as native code."""

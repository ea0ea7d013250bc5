"""Launching several instances of a program, as PopRun did."""

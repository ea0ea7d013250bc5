"""Slices and updates at places known only while a program runs: rows, tables, windows."""

"""Figures of `tremula fit`: known constants found again, and rows that a fit did not see."""

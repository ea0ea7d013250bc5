"""Electrons of small molecules by density functional theory (B3LYP), on tiles through JAX."""

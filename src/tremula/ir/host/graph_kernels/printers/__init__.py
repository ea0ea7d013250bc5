"""Printers of tile kernels: Triton and Gluon source from one description (`statements.py`)."""

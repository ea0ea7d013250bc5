"""The PopLibs suite: speed against PyTorch and NumPy, planning, the cost model."""

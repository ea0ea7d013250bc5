"""Models that were measured on real machines, as the measured programs have them, in PyTorch."""

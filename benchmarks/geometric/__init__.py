"""Figures of PopTorch Geometric: layers, feeding, packing, speed of training."""

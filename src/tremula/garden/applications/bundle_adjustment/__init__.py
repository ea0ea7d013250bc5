"""Cameras and points from pictures: bundle adjustment by Gaussian belief propagation on tiles."""

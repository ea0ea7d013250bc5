"""A policy that learns to balance a pole, with the world it acts in on the chip."""

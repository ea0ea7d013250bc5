"""Draws shapes by name, as Stable Diffusion does, with a tiny UNet."""

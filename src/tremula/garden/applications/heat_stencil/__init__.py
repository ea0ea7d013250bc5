"""The heat equation on a plate: the simplest stencil with halo exchange."""

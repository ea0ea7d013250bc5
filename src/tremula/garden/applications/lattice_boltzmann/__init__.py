"""A lattice Boltzmann fluid: nine populations per cell, streamed by views, collided by vertices."""

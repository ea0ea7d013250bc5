"""Decompositions: ATen operations computed with simpler ones before they are lowered to tiles."""

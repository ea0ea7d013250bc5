"""Complex numbers as pairs of real ones: what ATen's operations are for them."""

"""Letters learnt with products of 8-bit floats, unit-scaled."""

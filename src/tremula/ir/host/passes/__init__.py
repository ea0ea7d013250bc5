"""Passes that only the host needs: strides, memory formats, halves, in-place writes."""

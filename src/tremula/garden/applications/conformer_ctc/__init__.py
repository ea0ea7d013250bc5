"""Words of tones, read by a Conformer with CTC."""

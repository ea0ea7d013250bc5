"""What all front ends share, each idea once."""

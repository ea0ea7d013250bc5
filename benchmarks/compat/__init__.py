"""Programs of the structure of public ones, counted by framework."""

"""What the sciences of the garden share: grids over tiles, plots."""

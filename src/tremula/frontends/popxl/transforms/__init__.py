"""Changes of whole graphs: gradients, merged transfers, sums."""

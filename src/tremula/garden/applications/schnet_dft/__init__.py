"""SchNet on energies that the garden's own density functional theory computed."""

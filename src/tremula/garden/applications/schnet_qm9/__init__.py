"""SchNet on the molecules of QM9."""

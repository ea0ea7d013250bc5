"""The tile programs that stand for measured rows: one file per family, found by `table`."""

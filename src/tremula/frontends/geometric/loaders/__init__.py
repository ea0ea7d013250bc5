"""Data loaders whose batches all have one size."""

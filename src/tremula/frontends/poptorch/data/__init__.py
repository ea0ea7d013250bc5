"""Loading data: the data loader, its processes and its ring of shared memory."""

"""Cluster-GCN: a large graph in batches of clusters."""

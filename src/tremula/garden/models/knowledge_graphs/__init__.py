"""Embeddings of knowledge graphs, sharded over replicas: scores, losses, their operations."""

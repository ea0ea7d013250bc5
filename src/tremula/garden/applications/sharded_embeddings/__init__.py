"""Embeddings of a knowledge graph in balanced shards over chips that swap rows (BESS)."""

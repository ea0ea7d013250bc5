"""Transforms of graphs: gradients, recomputation, loops over micro-batches, pipelines."""

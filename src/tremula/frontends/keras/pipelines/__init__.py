"""Pipelines of stages: what scripts say about layers, and where their operations run."""

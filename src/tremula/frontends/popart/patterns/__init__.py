"""Patterns: rewrites of ONNX graphs by ONNX graphs, before a model is imported."""

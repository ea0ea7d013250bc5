"""What PopART's operations compute: one function over PyTorch per kind.

ONNX's operators (ai.onnx and PopART's own ai.graphcore) and those of PopXL are names, attributes
and checks around these functions. Kinds that are one function of PyTorch have none here.
"""

"""The PopART API: ONNX graphs built, run, trained and costed; `popart` names its parts.

Enumerations, options and the log, which PopTorch shares, load without the package onnx.
"""

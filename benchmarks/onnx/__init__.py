"""Figures of ONNX models: the official tests of backends, speed against onnxruntime."""

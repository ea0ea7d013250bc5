"""EfficientNet: trained, exported to ONNX, and run from the file."""

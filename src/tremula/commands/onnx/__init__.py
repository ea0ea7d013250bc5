"""What the command does with ONNX models: run, profile, check."""

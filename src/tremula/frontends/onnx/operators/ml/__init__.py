"""ai.onnx.ml: classic models of machine learning."""

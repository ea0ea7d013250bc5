"""The builder: an ONNX graph written call by call, with ids, scopes, types and annotations."""

"""Graphcore's add-ons for TensorFlow, by the names that programs import: docs/keras-porting.md."""

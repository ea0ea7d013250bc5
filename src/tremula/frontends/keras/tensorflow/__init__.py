"""The names of TensorFlow that scripts for IPUs import, on top of Keras; only on request."""

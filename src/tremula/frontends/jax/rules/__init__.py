"""What each primitive of JAX is in PyTorch: files by family, which enter themselves."""

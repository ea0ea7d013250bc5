"""PopTorch's optimisers, and how a compiled update follows them."""

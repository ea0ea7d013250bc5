"""The PopTorch API: options, data, blocks, optimisers and the executor of wrapped models."""

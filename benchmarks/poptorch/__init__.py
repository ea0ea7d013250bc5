"""The PopTorch suite: host speed, tile programs, compile times."""

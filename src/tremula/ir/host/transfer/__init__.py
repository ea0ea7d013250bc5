"""How inputs get from ordinary memory to a GPU while it computes."""

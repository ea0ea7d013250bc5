"""PopTorch Geometric: graphs of PyTorch Geometric in batches of one size, as static programs."""

from tremula.base.requirements import require

require("PopTorch Geometric", "geometric")

"""The PopTorch API: options, data, blocks, optimisers and the executor of wrapped models."""

from tremula.base.requirements import require

require("PopTorch", "torch")

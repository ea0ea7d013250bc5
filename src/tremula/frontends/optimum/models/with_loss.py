"""A model for a training step: the loss is marked, the rest of the outputs stays on the device."""

from typing import Any

from torch import Tensor, nn

import poptorch


class WithLoss(nn.Module):
    """Gives the loss of a model and nothing else, whatever the model calls it and sums it from."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, **inputs: Any) -> Tensor:  # noqa: ANN401
        outputs = self.model(**inputs)
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs[0]
        return poptorch.identity_loss(loss, reduction="none")

"""Automatic loss scaling: the scale follows the size of the gradients it scales."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_LARGEST_HALF = 65504.0
_LARGEST_SCALE = 2.0**24


@dataclass(frozen=True)
class AutomaticLossScaling:
    """Halve the scale if too many gradient elements come near the largest half, else double it.

    Scales are powers of two times the first one, so that they change no bit of a float.
    """

    bin_edge: float = 0.125  # elements above this share of the largest half are large
    threshold: float = 1e-7  # the share of large elements that is too much

    def next_scale(self, scale: Tensor, gradients: Sequence[Tensor]) -> Tensor:
        """The scale of the next step, from the scaled and reduced gradients of this one."""
        edge = self.bin_edge * _LARGEST_HALF
        small = [(gradient.abs() <= edge).float().sum() for gradient in gradients]
        n_all = sum(gradient.numel() for gradient in gradients)
        n_small = torch.stack(small).sum()  # what is infinite or no number is not small
        is_large = n_all - n_small > self.threshold * n_all
        return torch.where(is_large, scale * 0.5, scale * 2.0).clamp(1.0, _LARGEST_SCALE)

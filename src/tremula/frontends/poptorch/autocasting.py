"""`poptorch.autocast`: a region of a model whose products are computed in half."""

from contextlib import ContextDecorator
from typing import Self

import torch

from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.ir.recording import active


class autocast(ContextDecorator):  # noqa: N801 - PopTorch's name
    """Products of this region take and give float16; losses, norms and softmax stay in float32.

    A context or a decorator of `forward`, as in PopTorch 2. `enabled=False` turns casting off for a
    part of a region. It is `torch.autocast` for IPUs; a model that runs without a compilation
    computes as if it were not there.
    """

    def __init__(self, enabled: bool = True):
        if not isinstance(enabled, bool):
            raise createPoptorchError(f"autocast(enabled) takes True or False, got {enabled!r}")
        self.enabled = enabled
        self._regions: list[torch.autocast | None] = []  # those that are entered, innermost last

    def __enter__(self) -> Self:
        region = None
        if active() is not None:
            region = torch.autocast("ipu", dtype=torch.float16, enabled=self.enabled)
            region.__enter__()
        self._regions.append(region)
        return self

    def __exit__(self, *error: object) -> None:
        region = self._regions.pop()
        if region is not None:
            region.__exit__(*error)

"""A dense layer whose product is computed slice by slice, for large vocabularies."""

from torch import Tensor, nn

import poptorch


class SlicedLinear(nn.Linear):
    """A dense layer whose product is computed in `factor` slices."""

    def __init__(self, n_in: int, n_out: int, factor: int, mode: poptorch.MatMulSerializationMode):
        super().__init__(n_in, n_out, bias=False)
        self.factor, self.mode = factor, mode

    def forward(self, input: Tensor) -> Tensor:
        return poptorch.serializedMatMul(input, self.weight.t(), self.mode, self.factor)

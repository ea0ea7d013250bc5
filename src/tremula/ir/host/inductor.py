"""Host execution through TorchInductor: the micro-batch part compiled to fused native code."""

import torch

from tremula.ir.host.program import HostProgram, MicroBatch
from tremula.ir.step import CapturedStep


class InductorProgram(HostProgram):
    """The step with its micro-batch part compiled by PyTorch's own compiler."""

    def compile(self, part: CapturedStep) -> MicroBatch:
        """Inductor takes the functional graph as it is; shapes are static."""
        module = part.module()
        compiled = torch.compile(module, backend="inductor", fullgraph=True, dynamic=False)

        def run(*args: torch.Tensor) -> list[torch.Tensor]:
            return list(compiled(*args))

        return run

"""Operators of models that `tremula.custom_operation` registers, under PopART's names."""

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes as outside_the_recording

from tremula.frontends.onnx.table import Operator
from tremula.ir.ops import custom as registry


def custom_operator(domain: str, name: str, version: int) -> Operator | None:
    """The entry of a registered operation; None if there is none of these names."""
    key = registry.key_of(name, domain, version)
    operation = registry.find(key)
    if operation is None:
        return None

    def outline(*operands: Tensor, **attributes: object) -> tuple[Tensor, ...]:
        """Results for zeros: their shapes and types are those of all results."""
        with outside_the_recording(), torch._C.DisableTorchFunction(), torch.no_grad():
            zeros = [torch.zeros(tuple(x.shape), dtype=x.dtype) for x in operands]
            return tuple(operation.host(zeros, attributes))

    def compute(*operands: Tensor, **attributes: object) -> tuple[Tensor, ...]:
        examples = outline(*operands, **attributes)
        return tuple(registry.record(list(operands), key, examples, attributes))

    return Operator(
        domain=domain,
        name=name,
        compute=compute,
        outline=outline,
        folds=False,
        takes_any_attribute=True,
    )

"""Trees of tensors and of their values."""

from collections.abc import Mapping

import numpy as np

import popxl
from popxl import ops
from tremula.frontends.popxl_addons.named.dot_tree import DotTree

TensorMap = Mapping[popxl.Tensor, popxl.Tensor]


class NamedTensors(DotTree[popxl.Tensor]):
    """Tensors by dotted names."""

    @property
    def tensors(self) -> tuple[popxl.Tensor, ...]:
        """The tensors alone."""
        return tuple(self.to_dict().values())

    @property
    def named_tensors(self) -> dict[str, popxl.Tensor]:
        """All tensors by name."""
        return self.to_dict()

    def remap(self, mapping: TensorMap) -> "NamedTensors":
        """What tensors become under a mapping, which must have all of them."""
        for name, t in self.to_dict().items():
            if t not in mapping:
                raise KeyError(f"The mapping has no entry for {name}: {t!r}")
        return self.remap_known(mapping)

    def remap_known(self, mapping: TensorMap) -> "NamedTensors":
        """What tensors become under a mapping; those that it does not have are left out."""
        result = {name: mapping[t] for name, t in self.to_dict().items() if t in mapping}
        return NamedTensors.from_dict(result)


class NamedTensorData(DotTree[np.ndarray]):
    """Arrays by dotted names."""


def print_named_tensors(named_tensors: NamedTensors) -> NamedTensors:
    """Print each tensor under its name when the program runs; the tensors to continue with."""
    return NamedTensors.from_dict(
        {name: ops.print_tensor(t, name) for name, t in named_tensors.to_dict().items()}
    )

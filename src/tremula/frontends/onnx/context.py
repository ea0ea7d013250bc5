"""What operators use that need more than operands and attributes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes


class BodyGraph(Protocol):
    """A graph that is an attribute, as operators see it."""

    @property
    def inputs(self) -> tuple[Any, ...]: ...

    @property
    def outputs(self) -> tuple[Any, ...]: ...


@dataclass(frozen=True)
class NodeContext:
    version: int  # of the operator set
    outputs: tuple[str, ...]  # names; "" for one that is not used
    input_types: tuple[int, ...]  # element types by ONNX's numbers
    output_types: tuple[int, ...]  # the same, 0 where it is not known
    device: torch.device | None  # of a recording: where its new tensors are made
    run_body: Callable[..., list[Any]]  # (graph, operands): it sees the values around the node
    bring_in: Callable[[Any], Any]  # a value as part of the recording, if there is one
    # (values by name, wanted names): other nodes of the graph, computed again from these values
    recompute: Callable[[dict[str, Any], list[str]], dict[str, Any]]

    @property
    def n_outputs(self) -> int:
        return len(self.outputs)

    def wants(self, index: int) -> bool:
        return index < len(self.outputs) and bool(self.outputs[index])


@contextmanager
def outside_the_recording() -> Iterator[None]:
    """Tensors made inside the block have values, also while a model is recorded."""
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
        yield


def known(array: np.ndarray) -> Tensor:
    """Numbers as a tensor with values, also while a model is recorded."""
    with outside_the_recording():
        return torch.from_numpy(np.array(array, order="C"))

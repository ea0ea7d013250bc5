"""poptorch.CPU: a layer that runs on this computer in the middle of a model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes as _outside_the_recording

from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.inputs.structures import flatten_outputs, put_together, take_apart
from tremula.ir.ops import host_calls
from tremula.ir.recording import Recording, active


class CPU:
    """Runs a module or function on the CPU whenever the model reaches it. Inference only.

    Call `execute` or the object itself where the layer would be called. ID names it in reports.
    """

    def __init__(self, layer_to_call: Callable[..., Any], ID: str):  # noqa: N803
        assert callable(layer_to_call), f"poptorch.CPU needs a layer, got {layer_to_call!r}"
        assert isinstance(ID, str), f"the ID of a poptorch.CPU layer is text, got {ID!r}"
        self._layer_to_call = layer_to_call
        self.ID = ID

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        recording = active()
        if recording is None:
            return self._layer_to_call(*args, **kwargs)
        if recording.training:
            raise createPoptorchError("poptorch.CPU() is only supported in inference.")
        return self._record(recording, args, kwargs)

    execute = __call__

    def _record(self, recording: Recording, args: tuple, kwargs: dict) -> Any:  # noqa: ANN401
        """Run once on zeros to learn the results' shapes, then leave a node that calls it."""
        tensors: list[Tensor] = []
        structure = take_apart((args, kwargs), tensors.append)

        def run(given: list[Tensor]) -> tuple[list[Tensor], Callable]:
            own_args, own_kwargs = put_together(structure, iter(given))
            return flatten_outputs(self._layer_to_call(*own_args, **own_kwargs))

        with _outside_the_recording(), torch._C.DisableTorchFunction(), torch.no_grad():
            zeros = [torch.zeros(x.shape, dtype=x.dtype) for x in tensors]
            with _own_weights(self._layer_to_call, recording):
                examples, rebuild = run(zeros)
        code = host_calls.host_code(self.ID, lambda given: run(given)[0])
        return rebuild(host_calls.record(code, tensors, examples))


@contextmanager
def _own_weights(layer: object, recording: Recording) -> Iterator[None]:
    """While a model is recorded, its modules hold stand-ins: the layer has its weights back."""
    swapped = []
    for module in layer.modules() if isinstance(layer, nn.Module) else ():
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items():
                if tensor is not None and id(tensor) in recording.stand_ins:
                    swapped.append((table, name, tensor))
    try:
        for table, name, tensor in swapped:
            table[name] = recording.stand_ins[id(tensor)]
        yield
    finally:
        for table, name, tensor in swapped:
            table[name] = tensor

"""A script's own code in a model: custom operations on tiles, layers that run on the CPU."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes as _outside_the_recording

from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.inputs.arguments import flatten_outputs, put_together, take_apart
from tremula.ir.capture.capture import tensors_by_name
from tremula.ir.ops import custom as registry
from tremula.ir.ops import host_calls
from tremula.ir.recording import Recording, active
from tremula.ir.step import BUFFER, PARAMETER

Value = float | int | str | list | tuple

# -- poptorch.custom_op ----------------------------------------------------------------------------


def custom_op(
    inputs: Sequence[Tensor],
    name: str,
    domain: str,
    domain_version: int,
    example_outputs: Sequence[Tensor],
    attributes: dict[str, Value] | None = None,
) -> list[Tensor]:
    """Apply an operation registered with `tremula.custom_operation`.

    `example_outputs` have the shapes and types of its results. Outside of a model it returns zeros
    like them.
    """
    values = _checked(attributes or {})
    recording = active()
    if recording is None:
        return [torch.zeros_like(example) for example in example_outputs]
    for example in example_outputs:
        if not isinstance(example, Tensor):
            raise createPoptorchError(
                f"example_outputs of custom_op must be tensors, got {type(example).__name__}."
            )
    key = registry.key_of(name, domain, domain_version)
    return list(registry.record(list(inputs), key, example_outputs, values))


def accessAttributes(attribute_id_str: str) -> dict[str, Any]:  # noqa: N802
    """The attributes of a custom operation from the text of its node."""
    try:
        result = json.loads(attribute_id_str)
    except json.JSONDecodeError as error:
        raise createPoptorchError(f"{attribute_id_str!r} does not name any attributes.") from error
    return result


def _checked(attributes: dict[str, Value]) -> dict[str, Value]:
    if not isinstance(attributes, dict):
        raise ValueError(f"attributes must be a dict, got {type(attributes).__name__}.")  # noqa: TRY004
    for key, value in attributes.items():
        if not isinstance(key, str):
            raise ValueError(f"attribute keys must be str, got {key!r}.")  # noqa: TRY004
        _check_ascii(key)
        _check_value(key, value)
    return dict(attributes)


def _check_value(key: str, value: object) -> None:
    items = list(value) if isinstance(value, list | tuple) else [value]
    for item in items:
        if type(item) not in (float, int, str):
            raise ValueError(
                f"attribute {key!r} must be a float, int or str, or a list or tuple of one of them,"
                f" got {item!r}."
            )
        if isinstance(item, str):
            _check_ascii(item)
    if len({type(item) for item in items}) > 1:
        raise ValueError(f"all items of attribute {key!r} must have one type, got {value!r}.")
    if any(isinstance(item, int) and not -(2**63) <= item < 2**63 for item in items):
        raise ValueError(f"attribute {key!r} does not fit into 64 bits: {value!r}.")


def _check_ascii(text: str) -> None:
    if not text.isascii():
        raise ValueError(f"attributes must be ASCII only, got {text!r}.")


# -- poptorch.CPU: a layer that runs on this computer in the middle of a model ---------------------


class CPU:
    """Runs a module or function on the CPU whenever the model reaches it. Inference only.

    Call `execute` or the object itself where the layer would be called. ID names it in reports.
    """

    def __init__(self, layer_to_call: Callable[..., Any], ID: str):  # noqa: N803
        assert callable(layer_to_call), f"poptorch.CPU needs a layer, got {layer_to_call!r}"
        assert isinstance(ID, str), f"the ID of a poptorch.CPU layer is text, got {ID!r}"
        self._layer_to_call = layer_to_call
        self.ID = ID

    def __call__(self, *args: object, **kwargs: object) -> Any:  # noqa: ANN401
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

        def run(inputs: list[Tensor]) -> tuple[list[Tensor], Callable]:
            layer_args, layer_kwargs = put_together(structure, iter(inputs))
            return flatten_outputs(self._layer_to_call(*layer_args, **layer_kwargs))

        with _outside_the_recording(), torch._C.DisableTorchFunction(), torch.no_grad():
            zeros = [torch.zeros(x.shape, dtype=x.dtype) for x in tensors]
            with _own_weights(self._layer_to_call, recording):
                examples, rebuild = run(zeros)
        code = host_calls.host_code(self.ID, lambda inputs: run(inputs)[0])
        return rebuild(host_calls.record(code, tensors, examples))


@contextmanager
def _own_weights(layer: object, recording: Recording) -> Iterator[None]:
    """Inside, the layer has its weights, not what replaces them while a model is recorded."""
    swapped = []
    for module in layer.modules() if isinstance(layer, nn.Module) else ():
        for table in (tensors_by_name(module, kind) for kind in (PARAMETER, BUFFER)):
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

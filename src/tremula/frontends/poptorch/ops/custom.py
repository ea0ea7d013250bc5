"""poptorch.custom_op: operations of the user's own, found by name in the registry of the IR."""

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.ir.ops import custom as registry
from tremula.ir.recording import active

Value = float | int | str | list | tuple


def custom_op(
    inputs: Sequence[Tensor],
    name: str,
    domain: str,
    domain_version: int,
    example_outputs: Sequence[Tensor],
    attributes: dict[str, Value] | None = None,
) -> list[Tensor]:
    """Apply an operation entered with tremula.ir.ops.custom.register.

    `example_outputs` tell the shapes and types of its results. Outside of a model it gives zeros
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
    """The attributes of a custom operation from the text its node holds."""
    try:
        found = json.loads(attribute_id_str)
    except json.JSONDecodeError as error:
        raise createPoptorchError(f"{attribute_id_str!r} names no attributes.") from error
    return found


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

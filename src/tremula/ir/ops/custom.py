"""Custom operations: Python functions of tensors, and what they are on tiles, by name."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tremula.base.errors import InvalidOption, suggest
from tremula.base.libraries.fallbacks import load_named_operations
from tremula.ir.errors import CaptureError
from tremula.ir.ops.control import owned

Context = Any  # what autograd keeps between a call and its gradient
Attributes = Mapping[str, object]
Host = Callable[[list[Tensor], Attributes], Sequence[Tensor]]
# (tiles, tile tensors, attributes) -> tile tensors
OnTiles = Callable[[Any, list, Attributes], Sequence]
# (inputs, outputs, gradients of outputs, attributes) -> gradients of inputs, or None
Gradient = Callable[[list[Tensor], list[Tensor], list[Tensor], Attributes], Sequence[Tensor | None]]


@dataclass(frozen=True)
class CustomOperation:
    """What was registered under one name."""

    name: str
    domain: str
    version: int
    host: Host
    tiles: OnTiles | None
    gradient: Gradient | None

    @property
    def key(self) -> str:
        return key_of(self.name, self.domain, self.version)


_registered: dict[str, CustomOperation] = {}


def key_of(name: str, domain: str, version: int) -> str:
    return f"{domain}::{name}:{version}"


def custom_operation(
    name: str,
    domain: str = "custom.ops",
    version: int = 1,
    *,
    host: Host,
    tiles: OnTiles | None = None,
    gradient: Gradient | None = None,
) -> CustomOperation:
    """Register an operation that models call with poptorch.custom_op(…, name, domain, version, …).

    host: its value on this computer; tiles: its vertices (without, a model that holds it has no
    tile program); gradient: made of PyTorch's and custom operations (without: inference only).

        tremula.custom_operation(
            "Cube", "my.ops", host=lambda inputs, attributes: [inputs[0] ** 3], tiles=cube_on_tiles
        )
        (y,) = poptorch.custom_op([x], "Cube", "my.ops", 1, example_outputs=[x])

    docs/custom_ops.md writes a whole one.
    """
    for what, function in (("host", host), ("tiles", tiles), ("gradient", gradient)):
        if function is not None and not callable(function):
            raise InvalidOption(f"{what} of custom operation {name!r} is not a function.")
    operation = CustomOperation(name, domain, version, host, tiles, gradient)
    _registered[operation.key] = operation
    return operation


def find(key: str) -> CustomOperation | None:
    """The operation of a key, if a script or a file that the environment names registers it."""
    if key not in _registered:
        load_named_operations()
    return _registered.get(key)


def registered(key: str) -> CustomOperation:
    """The operation of a key, or an error that says how to register one."""
    operation = find(key)
    if operation is None:
        raise CaptureError(
            f"No custom operation {key} is registered.",
            hint=(f"{suggest(key, _registered)} or " if _registered else "")
            + "register it with tremula.custom_operation(name, domain, version, host=…) before"
            " the model runs, or name a file that does with TREMULA_CUSTOM_OPS"
            " (docs/custom_ops.md); compiled libraries of operations are not read",
        )
    return operation


def record(
    inputs: list[Tensor], key: str, examples: Sequence[Tensor], attributes: Attributes
) -> list[Tensor]:
    """A node of the operation in the active recording."""
    registered(key)
    outputs = [[str(x.dtype).removeprefix("torch."), list(x.shape)] for x in examples]
    return torch.ops.tremula.custom_op(inputs, key, json.dumps(outputs), json.dumps(attributes))


_library = torch.library.Library("tremula", "FRAGMENT")
_library.define("custom_op(Tensor[] inputs, str key, str outputs, str attributes) -> Tensor[]")


def _run(inputs: list[Tensor], key: str, outputs: str, attributes: str) -> list[Tensor]:
    result = list(registered(key).host(list(inputs), json.loads(attributes)))
    wanted = [(getattr(torch, dtype), tuple(shape)) for dtype, shape in json.loads(outputs)]
    got = [(tensor.dtype, tuple(tensor.shape)) for tensor in result]
    if got != wanted:
        raise CaptureError(
            f"Custom operation {key} gave {got}, but its example outputs are {wanted}.",
            hint="let its host function give what example_outputs promise",
        )
    return owned(result, list(inputs))


def _keep(ctx: Context, inputs: tuple, output: list[Tensor]) -> None:
    tensors, ctx.key, _, ctx.attributes = inputs
    ctx.n_inputs = len(tensors)
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx: Context, gradients: list[Tensor]) -> tuple:
    operation = registered(ctx.key)
    if operation.gradient is None:
        raise CaptureError(
            f"Custom operation {ctx.key} has no gradient, so a model with it cannot be trained.",
            hint="give one to tremula.custom_operation(…, gradient=fn)",
        )
    saved = list(ctx.saved_tensors)
    inputs, outputs = saved[: ctx.n_inputs], saved[ctx.n_inputs :]
    result = operation.gradient(inputs, outputs, list(gradients), json.loads(ctx.attributes))
    return list(result), None, None, None


for _device in ("CPU", "CUDA"):
    _library.impl("custom_op", _run, _device)
torch.library.register_autograd("tremula::custom_op", _gradients, setup_context=_keep, lib=_library)


@torch.library.register_fake("tremula::custom_op", lib=_library)
def _fake(inputs: list[Tensor], key: str, outputs: str, attributes: str) -> list[Tensor]:  # noqa: ARG001
    device = inputs[0].device if inputs else None
    return [
        torch.empty(shape, dtype=getattr(torch, dtype), device=device)
        for dtype, shape in json.loads(outputs)
    ]

"""Python code that runs on this computer in the middle of a program: tremula::host_call."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tremula.ir.ops.control import owned

_library = torch.library.Library("tremula", "FRAGMENT")
_library.define("host_call(Tensor[] inputs, str key, str outputs) -> Tensor[]")


@dataclass(frozen=True)
class HostCode:
    """A function of CPU tensors with a name that is unique in this process."""

    key: str
    run: Callable[[list[Tensor]], Sequence[Tensor]]


_known: dict[str, HostCode] = {}


def host_code(name: str, run: Callable[[list[Tensor]], Sequence[Tensor]]) -> HostCode:
    """Enter a function. A second one of the same name gets a number appended."""
    key, number = name, 1
    while key in _known:
        number += 1
        key = f"{name}#{number}"
    code = _known[key] = HostCode(key, run)
    return code


def code_of(key: str) -> HostCode:
    return _known[key]


def record(code: HostCode, inputs: list[Tensor], outputs: Sequence[Tensor]) -> list[Tensor]:
    """A node that calls the function; its results are like `outputs`."""
    kinds = [[str(x.dtype).removeprefix("torch."), list(x.shape)] for x in outputs]
    return torch.ops.tremula.host_call(inputs, code.key, json.dumps(kinds))


def _run(inputs: list[Tensor], key: str, _outputs: str) -> list[Tensor]:
    with torch.no_grad():
        result = code_of(key).run([tensor.cpu() for tensor in inputs])
    device = inputs[0].device if inputs else torch.device("cpu")
    return owned([tensor.detach().to(device) for tensor in result], list(inputs))


for _device in ("CPU", "CUDA"):
    _library.impl("host_call", _run, _device)


@torch.library.register_fake("tremula::host_call", lib=_library)
def _fake(inputs: list[Tensor], key: str, outputs: str) -> list[Tensor]:  # noqa: ARG001
    device = inputs[0].device if inputs else None
    return [
        torch.empty(shape, dtype=getattr(torch, dtype), device=device)
        for dtype, shape in json.loads(outputs)
    ]

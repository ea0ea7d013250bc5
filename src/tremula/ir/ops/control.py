"""Loops and branches as operations: tremula::for_loop and tremula::cond hold keys of bodies."""

from collections.abc import Callable

import torch
from torch import Tensor

from tremula.ir.capture.recording import Recording
from tremula.ir.capture.subgraphs import Body, body_of, capture_body
from tremula.ir.errors import CaptureError

_library = torch.library.Library("tremula", "FRAGMENT")
_library.define("for_loop(Tensor[] state, Tensor[] captured, int count, str body) -> Tensor[]")
_library.define(
    "cond(Tensor condition, Tensor[] then_inputs, Tensor[] else_inputs, str then_body,"
    " str else_body) -> Tensor[]"
)
_DEVICES = ("CPU", "CUDA")


def record_loop(
    state: Recording, count: int, body: Callable[..., object], inputs: list[Tensor]
) -> list[Tensor]:
    """A loop that runs in the program: each round's results are the next round's inputs."""
    key, captured = capture_body(state, body, inputs)
    found = body_of(key).results()
    if len(found) != len(inputs):
        raise CaptureError(
            f"The body of a loop gives {len(found)} tensors, but takes {len(inputs)}.",
            hint="return a new value for each input",
        )
    for index, (before, after) in enumerate(zip(inputs, found, strict=True)):
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            raise CaptureError(
                f"The body of a loop turns its input {index} from {_kind(before)} to"
                f" {_kind(after)}: shapes and types must stay.",
                hint="cast or reshape the value before it is returned",
            )
    return torch.ops.tremula.for_loop(inputs, captured, count, key)


def record_cond(
    state: Recording,
    condition: Tensor,
    then_body: Callable[..., object],
    then_inputs: list[Tensor],
    else_body: Callable[..., object],
    else_inputs: list[Tensor],
) -> list[Tensor]:
    """A branch that is taken in the program: both are captured, one runs."""
    then_key, then_more = capture_body(state, then_body, then_inputs)
    else_key, else_more = capture_body(state, else_body, else_inputs)
    kinds = [[_kind(value) for value in body_of(key).results()] for key in (then_key, else_key)]
    if len(kinds[0]) != len(kinds[1]):
        raise CaptureError(
            f"The branches of a condition give {len(kinds[0])} and {len(kinds[1])} tensors:"
            " both must give the same number of outputs."
        )
    if kinds[0] != kinds[1]:
        raise CaptureError(
            f"The branches of a condition give {kinds[0]} and {kinds[1]}: shapes and types must"
            " be the same."
        )
    return torch.ops.tremula.cond(
        condition, [*then_inputs, *then_more], [*else_inputs, *else_more], then_key, else_key
    )


def _kind(value: Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"


def _run_loop(state: list[Tensor], captured: list[Tensor], count: int, body: str) -> list[Tensor]:
    function = body_of(body).on_host(_device(state, captured))
    given = list(state)
    for _ in range(count):
        state = function(*state, *captured)
    return owned(state, [*given, *captured])


def _run_cond(
    condition: Tensor,
    then_inputs: list[Tensor],
    else_inputs: list[Tensor],
    then_body: str,
    else_body: str,
) -> list[Tensor]:
    is_true = bool(condition.reshape(()).item())
    inputs, key = (then_inputs, then_body) if is_true else (else_inputs, else_body)
    return owned(body_of(key).on_host(condition.device)(*inputs), inputs)


def _device(*groups: list[Tensor]) -> torch.device:
    return next((tensor.device for group in groups for tensor in group), torch.device("cpu"))


def owned(results: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    """Results as tensors of their own: an operation gives neither its inputs nor one twice."""
    taken = {tensor.untyped_storage().data_ptr() for tensor in others}
    own = []
    for result in results:
        if result.untyped_storage().data_ptr() in taken:
            result = result.clone()
        taken.add(result.untyped_storage().data_ptr())
        own.append(result)
    return own


def _new_like(body: Body, on: list[Tensor]) -> list[Tensor]:
    device = _device(on)
    return [
        torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=device)
        for fake in body.results()
    ]


for _device_key in _DEVICES:
    _library.impl("for_loop", _run_loop, _device_key)
    _library.impl("cond", _run_cond, _device_key)


@torch.library.register_fake("tremula::for_loop", lib=_library)
def _fake_loop(
    state: list[Tensor],
    captured: list[Tensor],
    count: int,  # noqa: ARG001
    body: str,
) -> list[Tensor]:
    return _new_like(body_of(body), [*state, *captured])


@torch.library.register_fake("tremula::cond", lib=_library)
def _fake_cond(
    condition: Tensor,
    then_inputs: list[Tensor],  # noqa: ARG001
    else_inputs: list[Tensor],  # noqa: ARG001
    then_body: str,
    else_body: str,  # noqa: ARG001
) -> list[Tensor]:
    return _new_like(body_of(then_body), [condition])

"""Loops and branches as operations, which hold the keys of bodies."""

import torch
from torch import Tensor

from tremula.ir.bodies import Body, body_of

_library = torch.library.Library("tremula", "FRAGMENT")
_library.define("for_loop(Tensor[] state, Tensor[] captured, int count, str body) -> Tensor[]")
# A function of the program: however often it is called, its code is there once.
_library.define("call(Tensor[] inputs, str body) -> Tensor[]")
_library.define(
    "cond(Tensor condition, Tensor[] then_inputs, Tensor[] else_inputs, str then_body,"
    " str else_body) -> Tensor[]"
)
_library.define(
    "while_loop(Tensor[] state, Tensor[] condition_captured, Tensor[] captured,"
    " str condition_body, str body) -> Tensor[]"
)
# State goes from round to round; a row of each of `rows` goes in, and further results are rows.
_library.define(
    "scan(Tensor[] state, Tensor[] rows, Tensor[] captured, int count, bool is_reversed, str body)"
    " -> Tensor[]"
)
_DEVICES = ("CPU", "CUDA")


def _run_loop(state: list[Tensor], captured: list[Tensor], count: int, body: str) -> list[Tensor]:
    function = body_of(body).on_host(_device(state, captured))
    initial = list(state)
    for _ in range(count):
        state = function(*state, *captured)
    return owned(state, [*initial, *captured])


def _run_call(inputs: list[Tensor], body: str) -> list[Tensor]:
    return owned(body_of(body).on_host(_device(inputs))(*inputs), inputs)


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


def _run_while(
    state: list[Tensor],
    condition_captured: list[Tensor],
    captured: list[Tensor],
    condition_body: str,
    body: str,
) -> list[Tensor]:
    device = _device(state, captured)
    goes_on, function = body_of(condition_body).on_host(device), body_of(body).on_host(device)
    initial = list(state)
    while bool(goes_on(*state, *condition_captured)[0].item()):
        state = function(*state, *captured)
    return owned(state, [*initial, *captured])


def _run_scan(
    state: list[Tensor],
    rows: list[Tensor],
    captured: list[Tensor],
    count: int,
    is_reversed: bool,
    body: str,
) -> list[Tensor]:
    compiled = body_of(body).scan
    if compiled is not None:
        return owned(
            compiled(state, rows, captured, count, is_reversed), [*state, *rows, *captured]
        )
    function = body_of(body).on_host(_device(state, rows, captured))
    n, initial = len(state), list(state)
    made = _new_rows(body_of(body), n, count, [*state, *rows, *captured])
    for i in reversed(range(count)) if is_reversed else range(count):
        result = function(*state, *(row[i] for row in rows), *captured)
        state = result[:n]
        for target, value in zip(made, result[n:], strict=True):
            target[i] = value
    return [*owned(state, [*initial, *rows, *captured]), *made]


def _new_rows(body: Body, n_state: int, count: int, on: list[Tensor]) -> list[Tensor]:
    device = _device(on)
    return [
        torch.empty((count, *fake.shape), dtype=fake.dtype, device=device)
        for fake in body.results()[n_state:]
    ]


def _device(*groups: list[Tensor]) -> torch.device:
    return next((tensor.device for group in groups for tensor in group), torch.device("cpu"))


def owned(results: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    """Results as separate tensors: an operation returns neither its inputs nor one tensor twice."""
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
    _library.impl("call", _run_call, _device_key)
    _library.impl("cond", _run_cond, _device_key)
    _library.impl("while_loop", _run_while, _device_key)
    _library.impl("scan", _run_scan, _device_key)


@torch.library.register_fake("tremula::for_loop", lib=_library)
def _fake_loop(
    state: list[Tensor],
    captured: list[Tensor],
    count: int,  # noqa: ARG001
    body: str,
) -> list[Tensor]:
    return _new_like(body_of(body), [*state, *captured])


@torch.library.register_fake("tremula::call", lib=_library)
def _fake_call(inputs: list[Tensor], body: str) -> list[Tensor]:
    return _new_like(body_of(body), inputs)


@torch.library.register_fake("tremula::cond", lib=_library)
def _fake_cond(
    condition: Tensor,
    then_inputs: list[Tensor],  # noqa: ARG001
    else_inputs: list[Tensor],  # noqa: ARG001
    then_body: str,
    else_body: str,  # noqa: ARG001
) -> list[Tensor]:
    return _new_like(body_of(then_body), [condition])


@torch.library.register_fake("tremula::while_loop", lib=_library)
def _fake_while(
    state: list[Tensor],
    condition_captured: list[Tensor],  # noqa: ARG001
    captured: list[Tensor],
    condition_body: str,  # noqa: ARG001
    body: str,
) -> list[Tensor]:
    return _new_like(body_of(body), [*state, *captured])


@torch.library.register_fake("tremula::scan", lib=_library)
def _fake_scan(
    state: list[Tensor],
    rows: list[Tensor],
    captured: list[Tensor],
    count: int,
    is_reversed: bool,  # noqa: ARG001
    body: str,
) -> list[Tensor]:
    on, result = [*state, *rows, *captured], body_of(body)
    return [*_new_like(result, on)[: len(state)], *_new_rows(result, len(state), count, on)]

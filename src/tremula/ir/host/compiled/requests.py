"""Graphs as plain data that another process reads: what to compile, and for which arguments."""

import json
import pickle
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

_MAX_BYTES = 2**30  # of a message; graphs take kilobytes


@dataclass(frozen=True)
class NodeNumber:
    """An operand: the place of its node in the graph."""

    number: int


@dataclass(frozen=True)
class CallData:
    """One operation, by name, or a function that can be imported."""

    target: object
    args: Any
    kwargs: Any


@dataclass(frozen=True)
class ArgumentData:
    """What compiled code knows of an argument."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True)
class CompileRequest:
    """A function to compile and to store under a key."""

    key: str
    calls: tuple[CallData, ...]  # after the arguments, which are the first nodes
    results: tuple[NodeNumber, ...]
    arguments: tuple[ArgumentData, ...]
    choices: Mapping[str, bool]
    is_deterministic: bool
    matmul_precision: str


def request_of(
    key: str, graph: fx.Graph, args: Sequence[Tensor], choices: Mapping[str, bool]
) -> CompileRequest:
    """Raises ValueError for a graph that another process cannot read."""
    numbers = {node: NodeNumber(number) for number, node in enumerate(graph.nodes)}
    calls, results = [], ()
    for node in graph.nodes:
        operands = fx.map_arg((node.args, node.kwargs), numbers.__getitem__)  # pyright: ignore[reportArgumentType] - any value may be a node's
        if node.op == "call_function":
            calls.append(CallData(_named(node.target), *_plain(operands)))
        elif node.op == "output":
            results = tuple(_plain(operands[0][0]))
        elif node.op != "placeholder":
            raise ValueError(f"the graph has a node of kind {node.op}")
    kinds = (ArgumentData(tuple(x.shape), x.stride(), x.dtype, x.device) for x in args)
    return CompileRequest(
        key,
        tuple(calls),
        results,
        tuple(kinds),
        dict(choices),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
    )


def _plain(value: Any) -> Any:  # noqa: ANN401 - operands of any kind
    """Operands without the list types of a graph."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, list):
        return list(map(_plain, value))
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return value


def _named(target: object) -> object:
    if isinstance(target, OpOverload):
        namespace, _, name = target._schema.name.partition("::")
        return (namespace, name, target._schema.overload_name or "default")
    module = getattr(target, "__module__", None) or ""
    name = getattr(target, "__qualname__", "")
    is_ours = module.partition(".")[0] in ("operator", "_operator", "tremula")
    if is_ours and getattr(sys.modules.get(module), name, None) is target:
        return target
    raise ValueError(f"{target} is not an operation that another process has")


def module_of(request: CompileRequest) -> fx.GraphModule:
    """The graph of a request."""
    graph = fx.Graph()
    nodes = [graph.placeholder(f"input_{i}") for i in range(len(request.arguments))]

    def back(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, NodeNumber):
            return nodes[value.number]
        if isinstance(value, tuple | list):
            return type(value)(map(back, value))
        if isinstance(value, dict):
            return {name: back(part) for name, part in value.items()}
        return value

    for call in request.calls:
        target: Any = call.target
        if isinstance(target, tuple):
            namespace, name, overload = target
            target = getattr(getattr(getattr(torch.ops, namespace), name), overload)
        nodes.append(graph.call_function(target, back(call.args), back(call.kwargs)))
    graph.output([nodes[result.number] for result in request.results])
    return fx.GraphModule(torch.nn.Module(), graph)


def stand_ins(request: CompileRequest) -> list[Tensor]:
    """Tensors without memory that are like the arguments."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return [
            torch.empty_strided(a.shape, a.stride, dtype=a.dtype, device=a.device)
            for a in request.arguments
        ]


# -- between processes -----------------------------------------------------------------------------


def send_requests(pipe: IO[bytes], requests: Sequence[CompileRequest]) -> None:
    """Requests are pickled: their operands are numbers, types, devices and functions of ours."""
    _send(pipe, pickle.dumps(list(requests)))


def receive_requests(pipe: IO[bytes]) -> list[CompileRequest]:
    """What the parent process sends; raises EOFError if it has ended."""
    return pickle.loads(_receive(pipe))


def send_answer(pipe: IO[bytes], number: int, error: str) -> None:
    """The answer to one request: its number and what went wrong, or ""."""
    _send(pipe, json.dumps([number, error]).encode())


def receive_answer(pipe: IO[bytes], n_requests: int) -> tuple[int, str]:
    """The next answer; raises EOFError at the end, ValueError for what is not an answer."""
    match json.loads(_receive(pipe)):
        case [int(number), str(error)] if 0 <= number < n_requests:
            return number, error
    raise ValueError(f"expected an answer to one of {n_requests} requests")


def _send(pipe: IO[bytes], content: bytes) -> None:
    """A message behind its length: a reader can wait for one without reading ahead."""
    pipe.write(struct.pack("<Q", len(content)) + content)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    (size,) = struct.unpack("<Q", _exactly(pipe, 8))
    if size > _MAX_BYTES:  # a library that prints when it is imported, say
        raise ValueError("expected a message behind its length, got other text")
    return _exactly(pipe, size)


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    content = b""
    while len(content) < size:
        more = pipe.read(size - len(content))
        if not more:
            raise EOFError("the other process has ended")
        content += more
    return content

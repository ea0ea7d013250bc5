"""A step on several streams of a GPU: operations that do not depend on each other overlap.

Small models leave most of a GPU idle in each operation. In a CUDA graph the order of streams
becomes a graph of dependencies, so that gradients of weights, for example, are computed while the
layers that follow are. All values live until the end of a step, since no stream knows when another
one has read them: only steps that need little of the GPU's memory run in this way.
"""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from tremula.ir.host.transfer.outputs import OutputHook, last_maker
from tremula.ir.nodes import is_view
from tremula.ir.step import OUTPUT, CapturedStep

aten = torch.ops.aten
_N_STREAMS = 4
_LAUNCH_US = 3.0  # the shortest operation: 2.5 to 4 µs on an H200 (docs/gpu.md)
_BYTES_PER_US = 2e6  # 2 TB/s: half of what an H200 reaches, for operations of medium size
_SHARE_OF_MEMORY = 16  # values of a step may take 1/16 of the memory


def fits_on_streams(step: CapturedStep, device: torch.device) -> bool:
    """Whether there is memory for all values of a step at once."""
    n_bytes = sum(_n_bytes(node) for node in step.graph.nodes if _is_launched(node))
    return n_bytes * _SHARE_OF_MEMORY <= torch.cuda.get_device_properties(device).total_memory


def stream_of_nodes(graph: fx.Graph, n_streams: int = _N_STREAMS) -> dict[fx.Node, int]:
    """Put each operation where it can start first, in the order of the graph."""
    free = [0.0] * n_streams
    ends: dict[fx.Node, float] = {}
    streams: dict[fx.Node, int] = {}
    for node in graph.nodes:
        operands = [x for x in node.all_input_nodes if x in streams]
        latest = max(operands, key=ends.__getitem__, default=None)
        ready = ends[latest] if latest is not None else 0.0
        if not _is_launched(node):
            if latest is not None:  # a view is on the stream of its source
                streams[node], ends[node] = streams[latest], ready
            continue
        near = streams[latest] if latest is not None else 0
        best = min(range(n_streams), key=lambda s: (max(ready, free[s]), s != near, s))
        streams[node] = best
        ends[node] = free[best] = max(ready, free[best]) + _cost_us(node)
    return streams


def _is_launched(node: fx.Node) -> bool:
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    return not is_view(node.target) and node.target is not aten.reshape.default


def _n_bytes(node: fx.Node) -> int:
    value = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else [value]
    return sum(v.numel() * v.element_size() for v in values if isinstance(v, Tensor))


def _cost_us(node: fx.Node) -> float:
    moved = _n_bytes(node) + sum(_n_bytes(x) for x in node.all_input_nodes)
    return _LAUNCH_US + moved / _BYTES_PER_US


@dataclass(frozen=True)
class _StreamCall:
    node: fx.Node
    stream: int  # 0 is the stream of the caller
    waits: tuple[fx.Node, ...]  # operands of other streams
    is_waited_for: bool
    ends_outputs: bool  # the last one that computes an output of forward


def _calls(graph: fx.Graph, outputs: Sequence[fx.Node]) -> list[_StreamCall]:
    streams = stream_of_nodes(graph)
    waits = {
        node: tuple(x for x in node.all_input_nodes if streams.get(x, s) != s)
        for node, s in streams.items()
    }
    waited_for = {x for result in waits.values() for x in result}
    nodes = [node for node in graph.nodes if node.op != "output"]
    last = last_maker([(node,) for node in nodes], outputs)
    return [
        _StreamCall(node, streams.get(node, 0), waits.get(node, ()), node in waited_for, i == last)
        for i, node in enumerate(nodes)
    ]


class StreamedStep:
    """Runs each operation of a step on its stream."""

    def __init__(self, step: CapturedStep, device: torch.device, hook: OutputHook | None = None):
        self._module = step.module()
        self._results = step.results()
        self._outputs = [self._results[position] for position, _ in step.results_of_kind(OUTPUT)]
        self._hook = hook
        self._calls = _calls(step.graph, self._outputs)
        outputs = set(self._outputs)
        self._output_streams = {call.stream for call in self._calls if call.node in outputs}
        self._device = device
        self._others: list[torch.cuda.Stream] = []
        self._collecting: torch.cuda.Stream | None = None

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        main = torch.cuda.current_stream(self._device)
        if not self._others:
            self._others = [torch.cuda.Stream(self._device) for _ in range(_N_STREAMS - 1)]
        streams = [main, *self._others]
        for stream in self._others:
            stream.wait_stream(main)
        values: dict[fx.Node, Any] = {}
        events: dict[fx.Node, Any] = {}
        remaining = iter(inputs)
        for call in self._calls:
            stream = streams[call.stream]
            for x in call.waits:
                stream.wait_event(events[x])
            with torch.cuda.stream(stream):
                values[call.node] = self._run(call.node, values, remaining)
            if call.is_waited_for:
                events[call.node] = stream.record_event()
            if call.ends_outputs and self._hook is not None and self._hook.has_listener:
                self._give_outputs(self._hook, values, streams)
        for stream in self._others:
            main.wait_stream(stream)
        return [values[node] for node in self._results]

    def _give_outputs(
        self, hook: OutputHook, values: dict[fx.Node, Any], streams: Sequence[torch.cuda.Stream]
    ) -> None:
        """From a stream that waits for theirs; none of them waits for it."""
        if self._collecting is None:
            self._collecting = torch.cuda.Stream(self._device)
        for number in self._output_streams:
            self._collecting.wait_stream(streams[number])
        with torch.cuda.stream(self._collecting):
            hook(*(values[node] for node in self._outputs))

    def _run(self, node: fx.Node, values: dict[fx.Node, Any], inputs: Iterator[Tensor]) -> object:
        if node.op == "placeholder":
            return next(inputs)
        if node.op == "get_attr":
            return getattr(self._module, str(node.target))
        args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
        assert callable(node.target), f"{node} is a call"
        return node.target(*args, **kwargs)

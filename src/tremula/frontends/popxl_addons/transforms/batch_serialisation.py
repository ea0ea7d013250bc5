"""Loops over micro-batches: each round loads its data, calls a graph, and stores its results.

Data is in streams, or in rows of remote buffers: micro-batch i of row r is entry r · steps + i.
Three modes: "compute" loads and stores on the tiles that compute; "io" on tiles that are set apart;
"io_overlapped" loads the next micro-batch and stores the last while one is computed.
"""

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import popxl
from popxl import ops
from popxl.transforms import ExpectedConnectionType, GradGraphInfo
from tremula.frontends.popxl_addons.graphs.graph import GraphWithNamedArgs
from tremula.frontends.popxl_addons.named.tensors import NamedTensors
from tremula.frontends.popxl_addons.remote import create_remote_buffer
from tremula.frontends.popxl_addons.transforms.autodiff import remap_grad_info
from tremula.frontends.popxl_addons.utils import suffix_graph_name

IoMode = Literal["compute", "io", "io_overlapped"]
IO_MODES = ("compute", "io", "io_overlapped")


@dataclass
class RemoteHandle:
    """Where a tensor of a micro-batch is: a buffer, and rows before the one that the loop is at.

    A `row_offset` of None is always row 0. With a `shard_group`, entries are shards: gathered after
    they are loaded, sliced before they are stored.
    """

    buffer: popxl.RemoteBuffer
    row_offset: int | None = 0
    shard_group: popxl.ReplicaGrouping | None = None


Handle = popxl.HostToDeviceStream | RemoteHandle
AnyHandle = Handle | tuple[popxl.RemoteBuffer, int | None]
Loads = Mapping[popxl.Tensor, AnyHandle]
Streams = Mapping[popxl.Tensor, popxl.DeviceToHostStream]
Stores = Mapping[popxl.Tensor, AnyHandle]
Tensors = list[popxl.Tensor]


def batch_serial_buffer(
    t: popxl.Tensor | popxl.TensorSpec,
    steps: int = 1,
    rows: int = 1,
    shard_group: popxl.ReplicaGrouping | None = None,
) -> popxl.RemoteBuffer:
    """A buffer for a tensor of all micro-batches of all rows, sharded over a group if one is given.

    Micro-batch i of row r is entry r · steps + i.
    """
    n = 1 if shard_group is None else shard_group.group_size
    return create_remote_buffer(t, steps * rows, shard_group, n)


@dataclass
class BatchSerialResult:
    """A graph that loops, where it stored what, and what inputs of the first graph became."""

    graph: GraphWithNamedArgs
    stored_buffers: dict[popxl.Tensor, RemoteHandle]
    _remap_dict: dict[popxl.Tensor, popxl.Tensor]

    def remap_tensors(self, ts: NamedTensors) -> NamedTensors:
        """Inputs of the first graph as inputs of this one."""
        return ts.remap(self._remap_dict)


def batch_serialise(
    graph: GraphWithNamedArgs,
    steps: int,
    load_handles: Loads,
    store_streams: Streams,
    store_buffers: Stores,
    seed_input: popxl.Tensor | None = None,
    rows: int = 1,
    io_mode: IoMode = "io",
) -> BatchSerialResult:
    """A graph that calls another for each of `steps` micro-batches.

    Its inputs are the row, a seed if the graph has one (split for each micro-batch), and all inputs
    that are not loaded, passed by reference; named ones keep their names. Overlapped transfers need
    two steps: with one, "io_overlapped" is "io".
    """
    if io_mode == "io_overlapped" and steps == 1:
        logging.getLogger("popxl_addons").warning(
            "io_mode='io_overlapped' needs at least 2 steps: falling back to io_mode='io'"
        )
        io_mode = "io"
    handles = load_handles, store_streams, store_buffers
    return _Loop(graph, steps, rows, io_mode, *handles, seed_input).build()


def batch_serialise_non_overlapped(
    graph: GraphWithNamedArgs,
    steps: int,
    load_handles: Loads,
    store_streams: Streams,
    store_buffers: Stores,
    seed_input: popxl.Tensor | None = None,
    rows: int = 1,
    use_io_tiles: bool = False,
) -> BatchSerialResult:
    """`batch_serialise` that loads, computes and stores one after the other."""
    mode = "io" if use_io_tiles else "compute"
    handles = load_handles, store_streams, store_buffers
    return _Loop(graph, steps, rows, mode, *handles, seed_input).build()


def batch_serialise_overlapped(
    graph: GraphWithNamedArgs,
    steps: int,
    load_handles: Loads,
    store_streams: Streams,
    store_buffers: Stores,
    seed_input: popxl.Tensor | None = None,
    rows: int = 1,
) -> BatchSerialResult:
    """`batch_serialise` that loads the next and stores the last micro-batch while it computes."""
    handles = load_handles, store_streams, store_buffers
    return _Loop(graph, steps, rows, "io_overlapped", *handles, seed_input).build()


class _Loop:
    """One loop: which tensors are loaded, stored and passed on, and the graphs made of it."""

    def __init__(
        self,
        graph: GraphWithNamedArgs,
        steps: int,
        rows: int,
        io_mode: str,
        load_handles: Loads,
        store_streams: Streams,
        store_buffers: Stores,
        seed: popxl.Tensor | None,
    ):
        _check(steps, rows, io_mode)
        self.graph, self.steps, self.io_mode, self.seed = graph, steps, io_mode, seed
        self.loads = {t: _handle(h) for t, h in load_handles.items()}
        self.streams = dict(store_streams)
        self.buffers: dict[popxl.Tensor, RemoteHandle] = {
            t: handle
            for t, h in store_buffers.items()
            if isinstance(handle := _handle(h), RemoteHandle)
        }
        inner = graph.graph
        self.loaded = [t for t in inner.inputs if t in self.loads]
        self.stored = [t for t in (*inner.inputs, *inner.outputs) if self._is_stored(t)]
        self.passed = [t for t in inner.inputs if t not in self.loads and t != seed]
        for handle in (*self.loads.values(), *self.buffers.values()):
            if isinstance(handle, RemoteHandle):
                n_rows = 1 if handle.row_offset is None else rows + handle.row_offset
                handle.buffer.entries = max(handle.buffer.entries, n_rows * steps)

    def _is_stored(self, t: popxl.Tensor) -> bool:
        """Whether rounds store a tensor: one that is loaded from a buffer is there already."""
        is_remote = isinstance(self.loads.get(t), RemoteHandle)
        return not is_remote and (t in self.streams or t in self.buffers)

    def _stored_handles(self) -> dict[popxl.Tensor, RemoteHandle]:
        """Where tensors of the graph are after the loop."""
        return {
            t: loaded if isinstance(loaded := self.loads.get(t), RemoteHandle) else handle
            for t, handle in self.buffers.items()
            if t in self.graph.graph
        }

    def build(self) -> BatchSerialResult:
        """The graph with the loop, and what calls need to know of it."""
        inner = self.graph.graph
        outer = inner.ir.create_empty_graph(suffix_graph_name(inner.name, "repeat_graph"))
        with outer, popxl.in_sequence(True):
            row = popxl.graph_input([], popxl.int32, "batch_serial_loop_index")
            index = row * self.steps
            seeds = [] if self.seed is None else [
                popxl.graph_input(self.seed.shape, self.seed.dtype, "batch_serial_random_seed")
            ]  # fmt: skip
            passed = self._inputs_like(self.passed, by_ref=True)
            run = self._overlapped if self.io_mode == "io_overlapped" else self._plain
            run(index, seeds, passed)
        remap = dict(zip(self.passed, passed, strict=True))
        if self.seed is not None:
            remap[self.seed] = seeds[0]
        named = GraphWithNamedArgs(outer, self.graph.args.remap_known(remap))
        return BatchSerialResult(named, self._stored_handles(), remap)

    # -- ways to run the rounds --

    def _plain(self, index: popxl.Tensor, seeds: Tensors, passed: Tensors) -> None:
        """Load, compute, store: one after the other."""
        body, n_carried = self._body("micro_batch"), 1 + len(seeds)
        with body, popxl.in_sequence(True):
            i, *own_seeds = self._inputs_like([index, *seeds])
            own = self._inputs_like(self.passed, by_ref=True)
            seed, following = _split(own_seeds)
            results = self._compute(self._load(i), seed, own)
            self._store(i, results)
            for t in (i + 1, *following):
                popxl.graph_output(t)
        assert len(body.outputs) == n_carried
        ops.repeat(body, self.steps, index, *seeds, *passed)

    def _overlapped(self, index: popxl.Tensor, seeds: Tensors, passed: Tensors) -> None:
        """Load i, compute i - 1, store i - 2 at the same time."""
        loaded = self._load(index)
        index, following = index + 1, self._load(index + 1)
        seed, seeds = _split(seeds)
        done = self._compute(loaded, seed, passed)
        carried = [index + 1, *seeds, *following, *done]
        body = self._body("overlapped_micro_batch")
        with body, popxl.in_sequence(True):
            i, *rest = self._inputs_like(carried)
            own = self._inputs_like(self.passed, by_ref=True)
            own_seeds, here, last = _parts(rest, len(seeds), len(self.loaded))
            with popxl.in_sequence(False):
                coming = self._load(i)
                self._store(i - 2, last)
                seed, own_seeds = _split(own_seeds)
                finished = self._compute(here, seed, own)
            for t in (i + 1, *own_seeds, *coming, *finished):
                popxl.graph_output(t)
        index, *rest = ops.repeat(body, self.steps - 2, *carried, *passed)
        seeds, loaded, done = _parts(rest, len(seeds), len(self.loaded))
        self._store(index - 2, done)
        done = self._compute(loaded, _split(seeds)[0], passed)
        self._store(index - 1, done)

    # -- parts of a round --

    def _body(self, name: str) -> popxl.Graph:
        return self.graph.graph.ir.create_empty_graph(f"{name}_{self.io_mode}")

    def _inputs_like(self, tensors: Tensors, by_ref: bool = False) -> Tensors:
        return [
            popxl.graph_input(t.shape, t.dtype, t.name.replace("/", "_"), by_ref, t.meta_shape)
            for t in tensors
        ]

    def _load(self, index: popxl.Tensor) -> Tensors:
        entries = [self._entry(self.loads[t], index) for t in self.loaded]
        with self._transfers():
            result = [
                _loaded(self.loads[t], entry, t.name)
                for t, entry in zip(self.loaded, entries, strict=True)
            ]
        if self.io_mode != "compute":
            result = [ops.io_tile_copy(t) for t in result]
        return [self._gathered(t, value) for t, value in zip(self.loaded, result, strict=True)]

    def _gathered(self, t: popxl.Tensor, value: popxl.Tensor) -> popxl.Tensor:
        handle = self.loads[t]
        if isinstance(handle, RemoteHandle) and value.meta_shape and not t.meta_shape:
            return ops.collectives.replicated_all_gather(value, group=handle.shard_group)
        return value

    def _compute(self, loaded: Tensors, seed: popxl.Tensor | None, passed: Tensors) -> Tensors:
        values = dict(zip(self.loaded, loaded, strict=True))
        values |= dict(zip(self.passed, passed, strict=True))
        if self.seed is not None and seed is not None:
            values[self.seed] = seed
        info = self.graph.call_with_info(args=values)
        return [info.graph_to_parent(t) for t in self.stored]

    def _store(self, index: popxl.Tensor, values: Tensors) -> None:
        pairs = []
        for t, value in zip(self.stored, values, strict=True):
            handle = self.buffers.get(t)
            cut = value
            if handle is not None and handle.buffer.meta_shape and not value.meta_shape:
                cut = ops.collectives.replica_sharded_slice(value, handle.shard_group)
            pairs.append((t, handle, value, cut))
        entries = [h and self._entry(h, index) for _, h, _, _ in pairs]
        if self.io_mode != "compute":
            pairs = [
                (t, h, ops.io_tile_copy(v), ops.io_tile_copy(c) if h else c) for t, h, v, c in pairs
            ]
        with self._transfers():
            for (t, handle, value, cut), entry in zip(pairs, entries, strict=True):
                if handle is not None:
                    ops.remote_store(handle.buffer, entry, cut)
                if t in self.streams:
                    ops.host_store(self.streams[t], value)

    def _entry(self, handle: Handle, index: popxl.Tensor) -> popxl.Tensor | None:
        """The entry of a micro-batch; None in a stream."""
        if not isinstance(handle, RemoteHandle):
            return None
        if handle.row_offset is None:
            return index % self.steps
        return index + handle.row_offset * self.steps if handle.row_offset else index

    def _transfers(self) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(popxl.transforms.merge_exchange())
        stack.enter_context(popxl.in_sequence(False))
        if self.io_mode != "compute":
            stack.enter_context(popxl.io_tiles())
        return stack


def _check(steps: int, rows: int, io_mode: str) -> None:
    if io_mode not in IO_MODES:
        raise ValueError(f"io_mode must be one of {', '.join(IO_MODES)}, got {io_mode!r}")
    least = 2 if io_mode == "io_overlapped" else 1
    if steps < least:
        raise ValueError(f"steps must be at least {least} with io_mode {io_mode!r}, got {steps}")
    if rows < 1:
        raise ValueError(f"rows must be at least 1, got {rows}")


def _handle(handle: object) -> Handle:
    """A stream or RemoteHandle; a buffer, or (buffer, row offset), is short for the latter."""
    if isinstance(handle, popxl.HostToDeviceStream | RemoteHandle):
        return handle
    if isinstance(handle, popxl.RemoteBuffer):
        return RemoteHandle(handle)
    if isinstance(handle, tuple) and handle and isinstance(handle[0], popxl.RemoteBuffer):
        return RemoteHandle(*handle)
    raise TypeError(f"A handle is a stream or a RemoteHandle, got {handle!r}")


def _loaded(handle: Handle, entry: popxl.Tensor | None, name: str) -> popxl.Tensor:
    if isinstance(handle, RemoteHandle):
        return ops.remote_load(handle.buffer, entry, name)
    return ops.host_load(handle, name)


def _split(seeds: Tensors) -> tuple[popxl.Tensor | None, Tensors]:
    """A seed for this micro-batch, and what the next ones' come from."""
    if not seeds:
        return None, []
    own, following = ops.split_random_seed(seeds[0])
    return own, [following]


def _parts(tensors: Tensors, n_first: int, n_second: int) -> tuple[Tensors, Tensors, Tensors]:
    middle = n_first + n_second
    return tensors[:n_first], tensors[n_first:middle], tensors[middle:]


def batch_serialise_fwd_and_grad(
    forward_graph: GraphWithNamedArgs,
    gradient_graph: GraphWithNamedArgs,
    named_inputs_for_grad_graph: NamedTensors,
    steps: int,
    load_handles: Loads,
    store_streams: Streams,
    store_buffers: Mapping[popxl.Tensor, AnyHandle | popxl.ReplicaGrouping],
    seed_input: popxl.Tensor | None = None,
    rows: int = 1,
    io_mode: IoMode = "io",
) -> tuple[BatchSerialResult, BatchSerialResult]:
    """Loops for a graph and for its gradient.

    What the gradient needs of the forward graph is one of three: an argument of its loop, if it is
    in `named_inputs_for_grad_graph` (variables, typically `forward_graph.args`); loaded from where
    the forward loop loads it; or stored by the forward loop and loaded again. A group of replicas
    in `store_buffers` instead of a buffer shards a tensor that is stored so.
    """
    info = gradient_graph.grad_graph_info
    groups = {t: g for t, g in store_buffers.items() if isinstance(g, popxl.ReplicaGrouping)}
    buffers: dict[popxl.Tensor, Handle] = {
        t: _handle(h) for t, h in store_buffers.items() if not isinstance(h, popxl.ReplicaGrouping)
    }
    loads = {t: _handle(h) for t, h in load_handles.items()}
    name_of = {t: name for name, t in named_inputs_for_grad_graph.to_dict().items()}
    activations = _activations(info)
    for t in activations.values():
        if t in name_of or t in buffers:
            continue
        loaded = loads.get(t)
        if isinstance(loaded, RemoteHandle):
            buffers[t] = loaded
        else:
            buffer = batch_serial_buffer(t, steps, rows, groups.get(t))
            buffers[t] = RemoteHandle(buffer, 0, groups.get(t))

    def of(graph: popxl.Graph, handles: Mapping[popxl.Tensor, Any]) -> dict[popxl.Tensor, Any]:
        return {t: h for t, h in handles.items() if t in graph}

    fwd, bwd = forward_graph.graph, info.graph
    forward = batch_serialise(
        forward_graph, steps, of(fwd, loads), of(fwd, store_streams), of(fwd, buffers),
        seed_input, rows, io_mode,
    )  # fmt: skip
    args = {name_of[t]: own for own, t in activations.items() if t in name_of}
    named = NamedTensors.from_dict({**args, **gradient_graph.args.to_dict()})
    stored = {own: forward.stored_buffers[t] for own, t in activations.items() if t not in name_of}
    _check_gradients_are_loaded(info, loads)
    gradient = batch_serialise(
        GraphWithNamedArgs(bwd, named, info), steps, {**stored, **of(bwd, loads)},
        of(bwd, store_streams), of(bwd, buffers), None, rows, io_mode,
    )  # fmt: skip
    gradient.graph.grad_graph_info = remap_grad_info(info, fwd, bwd)
    return forward, gradient


def _activations(info: GradGraphInfo) -> dict[popxl.Tensor, popxl.Tensor]:
    """Inputs of a gradient graph that are tensors of the forward graph, with those."""
    return {
        own: e.fwd_tensor
        for own, e in zip(info.graph.inputs, info.expected_inputs, strict=False)
        if e.connection_type is ExpectedConnectionType.Fwd
    }


def _check_gradients_are_loaded(info: GradGraphInfo, loads: Mapping[popxl.Tensor, Handle]) -> None:
    for own, e in zip(info.graph.inputs, info.expected_inputs, strict=False):
        if e.connection_type is ExpectedConnectionType.FwdGrad and own not in loads:
            raise ValueError(
                f"The gradient graph's input {own!r}, the gradient by {e.fwd_tensor.name}, must"
                " have a handle in load_handles"
            )
